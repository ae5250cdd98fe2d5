# An answer in a form that a program can read. The first answer does not fit; the model is told where, and asked once more.
#
#   berth run examples/structured-output --replay examples/structured-output/transcript.jsonl

manifest "order" {
  file "order.txt" {
    content = "2 lamps at 20.00 EUR, 1 chair at 45.50 EUR\n"
  }
}

output_schema "order" {
  description = "An order."
  retry       = 1

  type = object({
    lines = list(object({
      item  = string
      count = number
      price = number
    }))
    total = doc("in EUR", number)
  })
}

agent "reader" {
  instructions  = "Read order.txt and give it back as JSON."
  manifest      = manifest.order
  output_schema = output_schema.order
}

run "default" {
  agent = agent.reader
  input = "Read the order."
}
