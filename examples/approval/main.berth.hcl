# An agent that may look and test as it likes, edits one directory, and asks a person before it publishes. Without a
# terminal the run pauses at the question:
#
#   berth run examples/approval --replay examples/approval/transcript.jsonl
#   berth runs show RUN
#   berth approve RUN
#   berth resume RUN

manifest "notes" {
  file "notes/release.md" {
    content = "# Release notes\n\nNothing yet.\n"
  }

  file "publish.sh" {
    content    = "#!/bin/sh\ncp notes/release.md published.md && echo published $(wc -w < published.md) words\n"
    executable = true
  }
}

agent "editor" {
  instructions = "You write the release notes in notes/ and publish them with ./publish.sh."
  manifest     = manifest.notes

  approvals {
    default = "deny"

    rule "look" {
      tools    = ["exec_command"]
      match    = ["^(ls|cat)( |$)"]
      decision = "allow"
    }

    rule "notes" {
      tools    = ["apply_patch"]
      paths    = ["notes/**"]
      decision = "allow"
    }

    rule "publish" {
      tools    = ["exec_command"]
      match    = ["^\\./publish\\.sh$"]
      decision = "ask"
      reason   = "Everybody can read what is published."
    }
  }
}

run "default" {
  agent = agent.editor
  input = "Note that approvals are there, and publish the notes."
}
