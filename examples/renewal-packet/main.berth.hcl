# An analyst reads a renewal packet and answers with citations. It has two files and a shell, in a sandbox that the
# kernel confines.

manifest "packet" {
  file "packet/contract.md" {
    description = "The contract that ends."
    content     = <<-EOT
      # Service agreement, Northwind Outfitters

      Term: 2025-01-01 to 2026-12-31.
      Seats: 180, at 42.00 USD a seat and month.
      Renewal: 12 months, unless either party objects in writing 60 days before the end.
      Price change at renewal: at most 5 %.
    EOT
  }

  file "packet/usage.csv" {
    description = "Seats in use, by month."
    content     = <<-EOT
      month,active_seats
      2026-06,171
      2026-07,169
      2026-08,158
      2026-09,149
      2026-10,141
      2026-11,132
    EOT
  }
}

agent "analyst" {
  instructions = <<-EOT
    You prepare contract renewals. Work out what the customer should be offered, from the files in packet/ alone. Check
    every number with a command. Cite each fact as [file:line], and write the offer to packet/offer.md.
  EOT

  manifest = manifest.packet
}

run "default" {
  agent     = agent.analyst
  input     = "Until when can Northwind object, how many seats should the renewal have, and what is the most it can cost a month?"
  max_turns = 10
}
