# An agent with an explorer as a tool. The explorer works in the same workspace, and may only look: what changes something
# is denied by its rules. It has a budget of its own within that of the run.
#
#   berth run examples/explorer --replay examples/explorer/transcript.jsonl

manifest "code" {
  file "src/greet.sh" {
    content = "#!/bin/sh\necho \"Hello, $1\"\n"
  }

  file "src/part.sh" {
    content = "#!/bin/sh\necho \"Goodbye, $1\"\n"
  }
}

agent "writer" {
  instructions = "Write documentation. Let the explorer find things out."
  manifest     = manifest.code

  agent_tool "explore" {
    agent       = agent.explorer
    description = "Finds things out about the files, and changes none."
    max_turns   = 5

    budget {
      tool_calls = 10
    }
  }
}

agent "explorer" {
  instructions = "Answer what you are asked about the files."

  capabilities {
    shell {}
  }

  approvals {
    default = "deny"

    rule "look" {
      tools    = ["exec_command"]
      match    = ["^(ls|cat|head|grep)( |$)"]
      decision = "allow"
    }
  }
}

run "default" {
  agent = agent.writer
  input = "Describe the programs of src in README.md."
}
