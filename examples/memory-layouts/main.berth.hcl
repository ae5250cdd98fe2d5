# Two agents in one workspace, each with a memory of its own, and a third that reads what the first one learned and
# writes nothing.
#
#   berth run examples/memory-layouts --replay examples/memory-layouts/transcript.jsonl

sandbox "desk" {
  driver = "unixlocal"

  session {
    source = "resume_or_create"
    key    = "posts"
    at_end = "stop"
  }
}

agent "writer" {
  instructions = "Write the post into post.md, then pass it on for review."
  handoffs     = [agent.reviewer]

  capabilities {
    defaults = true

    memory {
      memories_dir = "writing/memories"
      sessions_dir = "writing/sessions"

      read {
        live_update = false
      }

      generate {}
    }
  }
}

agent "reviewer" {
  instructions = "Say what is wrong with post.md."

  capabilities {
    defaults = true

    memory {
      memories_dir = "reviewing/memories"
      sessions_dir = "reviewing/sessions"

      read {
        live_update = false
      }

      generate {
        max_raw_memories_for_consolidation = 32
      }
    }
  }
}

agent "reader" {
  instructions = "Answer questions about how posts are written here."

  capabilities {
    defaults = true

    memory {
      memories_dir = "writing/memories"
      sessions_dir = "writing/sessions"

      read {
        live_update = false
      }
    }
  }
}

run "default" {
  agent   = agent.writer
  sandbox = sandbox.desk
  input   = "Announce Berth 1.0."
}

run "ask" {
  agent   = agent.reader
  sandbox = sandbox.desk
  input   = "How long is a post?"
}
