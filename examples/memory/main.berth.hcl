# An agent that learns: the second run begins with what the first one found out.
#
#   berth run examples/memory --run first  --replay examples/memory/transcript.jsonl
#   berth run examples/memory --run second --replay examples/memory/second.jsonl
#   cd examples/memory && berth memory show
#
# Memories are files in the workspace, which a session with a key keeps.

sandbox "desk" {
  driver = "unixlocal"

  session {
    source = "resume_or_create"
    key    = "clerk"
    at_end = "stop"
  }
}

manifest "books" {
  file "invoices/2026-01.csv" {
    content = "date;amount\n31.01.2026;1.200,50\n"
  }

  file "invoices/2026-02.csv" {
    content = "date;amount\n28.02.2026;980,00\n"
  }
}

agent "clerk" {
  instructions = "Answer questions about the invoices."
  manifest     = manifest.books

  capabilities {
    defaults = true

    memory {
      read {}

      generate {
        extra_prompt = "How files are read is worth more than what is in them."
      }
    }
  }
}

run "first" {
  agent   = agent.clerk
  sandbox = sandbox.desk
  input   = "What was January's invoice? I want amounts as plain numbers, such as 12.50."
}

run "second" {
  agent   = agent.clerk
  sandbox = sandbox.desk
  input   = "And February's?"
}
