# A coding task with a skill: the agent is told which skills there are, reads the one that fits, and works as it says.
#
#   berth run examples/skill --replay examples/skill/transcript.jsonl
#   berth skill list examples/skill
#   berth skill check examples/skill

manifest "words" {
  file "words.sh" {
    content    = "#!/bin/sh\n# Counts the words of its arguments.\necho $#\n"
    executable = true
  }

  file "CHANGES.md" {
    content = "# Changes\n"
  }
}

agent "coder" {
  instructions = "You mend small programs."
  manifest     = manifest.words

  capabilities {
    defaults = true

    skills {
      lazy_from "local_dir" {
        source = "./skills"
      }
    }
  }
}

run "default" {
  agent = agent.coder
  input = "./words.sh 'one two' says 1. It should say 2."
}
