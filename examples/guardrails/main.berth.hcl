# Checks around an agent: what is asked is looked at before a sandbox is made, an agent judges it while the work begins,
# what a tool is told is checked by a program, and the answer has to name its source.
#
#   berth run examples/guardrails --replay examples/guardrails/transcript.jsonl
#   berth run examples/guardrails --replay examples/guardrails/transcript.jsonl 'my password is 1234'

manifest "papers" {
  file "policy.md" {
    content = "Refunds are paid within 14 days.\n"
  }
}

guardrail "input" "no_secrets" {
  regex    = "(?i)password"
  require  = "no_match"
  parallel = false
  message  = "Leave passwords out of the question."
}

guardrail "input" "topic" {
  agent    = agent.judge
  tripwire = !output.about_refunds
  message  = "Only refunds are talked about here."
}

guardrail "tool_input" "inside" {
  command = ["sh", "-c", "! grep -q '\\.\\.'"]
  on_trip = "reject"
  message = "Stay in the workspace."
}

guardrail "output" "cites" {
  regex   = "\\[policy\\.md\\]"
  message = "The answer names no source."
}

output_schema "verdict" {
  type = object({ about_refunds = bool })
}

agent "judge" {
  sandboxed     = false
  instructions  = "Is the question about refunds?"
  output_schema = output_schema.verdict
}

tool "command" "read_paper" {
  description      = "Read a paper."
  command          = ["cat", "--", param.name]
  input_guardrails = [guardrail.tool_input.inside]

  parameters = object({ name = string })
}

agent "clerk" {
  instructions      = "Answer from the papers, and name the paper in brackets."
  manifest          = manifest.papers
  tools             = [tool.command.read_paper]
  input_guardrails  = [guardrail.input.no_secrets, guardrail.input.topic]
  output_guardrails = [guardrail.output.cites]
}

run "default" {
  agent = agent.clerk
  input = "How long does a refund take?"
}
