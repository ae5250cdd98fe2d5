berth {
  required_version = ">= 0.1"

  required_drivers {
    e2b = {
      source  = "berth/e2b"
      version = "~> 0.1"
    }
  }
}

variable "customer" {
  type = string
}

variable "regions" {
  type    = list(string)
  default = ["us-east-1", "eu-west-1"]
}

locals {
  bucket = "acme-${lower(var.customer)}"
  tags   = { customer = var.customer, team = "research" }
}

secret "openai" {
  env = "OPENAI_API_KEY"
}

secret "e2b" {
  file = "~/.config/e2b/token"
}

secret "aws" {
  command = ["aws", "configure", "export-credentials", "--format", "process"]
  format  = "json"
  ttl     = "15m"
}

model_provider "openai" {
  api_key = secret.openai
}

model "deep" {
  provider = model_provider.openai
  name     = "gpt-5.6"

  settings {
    timeout = "10m"
    reasoning {
      effort = "high"
    }
    retry {
      max_retries = 4
      backoff {
        initial = "500ms"
        max     = "30s"
      }
    }
  }
}

driver "e2b" {
  config {
    api_key = secret.e2b
  }
  log_level = "warn"
}

snapshot_store "s3" "archive" {
  bucket = local.bucket
  prefix = "snapshots/"
}

manifest "dataset" {
  root = "/home/user/work"

  dir "out" {
    permissions = "0775"

    file "README.md" {
      content = "Results for ${var.customer}\n"
    }
  }

  dynamic "mount" {
    for_each = toset(var.regions)
    iterator = region
    labels   = ["s3", "data/${region.value}"]

    content {
      bucket    = "${local.bucket}-${region.value}"
      region    = region.value
      read_only = true

      credentials {
        access_key_id     = secret.aws.AccessKeyId
        secret_access_key = secret.aws.SecretAccessKey
        session_token     = secret.aws.SessionToken
      }

      strategy "in_container" {
        pattern "rclone" {
          mode       = "fuse"
          extra_args = ["--vfs-cache-mode", "writes"]
        }
      }
    }
  }

  path_grant "/opt/models" {
    read_only   = true
    description = "Shared model files."
  }

  remote_mount_command_allowlist = ["ls", "cat", "head", "rg", "wc"]
}

sandbox "cloud" {
  driver = "e2b"

  config {
    template = "python-data"
    timeout  = 3600
    metadata = local.tags
  }

  exposed_ports                  = [8888]
  trusted_mount_credential_paths = [for r in var.regions : "data/${r}"]

  snapshot "store" {
    store   = snapshot_store.s3.archive
    persist = "on_stop"
    restore = "latest"
  }

  archive_limits {
    max_input_bytes     = 1073741824
    max_extracted_bytes = 4294967296
    max_members         = 100000
  }
}

mcp_server "stdio" "sql" {
  command = ["uvx", "mcp-sqlite", "--db", "out/results.db"]
  run_in  = "sandbox"
}

mcp_server "streamable_http" "tickets" {
  url         = "https://tickets.example.com/mcp"
  headers     = { "X-Team" = "research" }
  timeout     = "20s"
  cache_tools = true

  tool_filter {
    allow = ["search_tickets", "read_ticket"]
  }

  approval {
    require = ["close_ticket"]
  }
}

tool "hosted" "web" {
  type = "web_search"
}

tool "command" "plot" {
  description = "Render a chart from a CSV file in the workspace."
  target      = "sandbox"
  command     = ["python", "/opt/plot.py", "--in", param.csv, "--out", param.png]
  timeout     = "2m"

  parameters = object({
    csv = string
    png = string
  })
}

guardrail "input" "no_pii" {
  agent    = agent.classifier
  tripwire = output.contains_pii
  parallel = true
}

guardrail "output" "cites" {
  regex   = "\\[[0-9]+\\]"
  require = "match"
  message = "The answer must cite at least one source."
}

output_schema "report" {
  strict = true
  type = object({
    title    = string
    findings = list(object({ text = string, sources = list(string) }))
    score    = optional(number)
  })
}

output_schema "pii" {
  type = object({ contains_pii = bool })
}

agent "classifier" {
  sandboxed     = false
  model         = "gpt-5.4-mini"
  instructions  = "Decide whether the text has personal data."
  output_schema = output_schema.pii
}

agent "analyst" {
  model               = model.deep
  handoff_description = "Reads the data set and computes results."
  instructions        = templatefile("prompts/analyst.md.tmpl", { bucket = local.bucket, regions = var.regions })
  manifest            = manifest.dataset
  tools               = [tool.command.plot]
  mcp_servers         = [mcp_server.stdio.sql]
  handoffs            = [agent.lead]

  capabilities {
    defaults = true
    memory {
      read {
        live_update = false
      }
      generate {
        phase_one_model                    = "gpt-5.4-mini"
        phase_two_model                    = model.deep
        max_raw_memories_for_consolidation = 128
      }
    }
  }
}

agent "lead" {
  model             = model.deep
  instructions      = "Plan the work, then hand over to the analyst."
  manifest          = manifest.dataset
  tools             = [tool.hosted.web]
  mcp_servers       = [mcp_server.streamable_http.tickets]
  input_guardrails  = [guardrail.input.no_pii]
  output_guardrails = [guardrail.output.cites]
  output_schema     = output_schema.report
  tool_use_behavior = "run_llm_again"

  agent_tool "summarize" {
    agent       = agent.classifier
    description = "Classify one document."
    max_turns   = 3
    workspace   = "none"
  }

  handoff "analyst" {
    agent        = agent.analyst
    tool_name    = "to_analyst"
    description  = "Pass the data questions on."
    input_filter = "remove_all_tools"
    history      = "nested"
    workspace    = "shared"
  }

  approvals {
    default = "auto"
    rule "tickets" {
      mcp_servers = [mcp_server.streamable_http.tickets]
      tools       = ["close_ticket"]
      decision    = "ask"
    }
  }
}

run "report" {
  agent   = agent.lead
  sandbox = sandbox.cloud

  max_turns     = 80
  workflow_name = "Quarterly report"

  budget {
    total_tokens = 2000000
    wall_time    = "2h"
  }

  trace {
    group_id               = "report-${var.customer}"
    include_sensitive_data = false
    metadata               = local.tags
  }
}
