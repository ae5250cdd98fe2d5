# Three agents and one workspace: a desk without a sandbox reads the request, a worker does it, and a reviewer, which gets
# only what was said, looks at the files that the worker left.
#
#   berth run examples/handoffs --replay examples/handoffs/transcript.jsonl

manifest "shop" {
  file "prices.csv" {
    content = "item,price\nlamp,20\nchair,45\n"
  }
}

agent "desk" {
  sandboxed    = false
  instructions = "Read the request and pass it on to the agent that can do it."
  handoffs     = [agent.worker]
}

agent "worker" {
  handoff_description = "Edits files."
  instructions        = "Do what is asked, then pass your work on for review."
  manifest            = manifest.shop

  handoff "reviewer" {
    agent   = agent.reviewer
    history = "nested"
    input   = object({ changed = string })
  }
}

agent "reviewer" {
  instructions = "Look at the files that were changed and say whether the request is met."
}

run "default" {
  agent = agent.desk
  input = "Raise the price of the lamp to 25."
}
