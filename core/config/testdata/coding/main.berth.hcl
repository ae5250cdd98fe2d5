berth {
  required_version = "~> 0.1"

  required_drivers {
    docker = {
      source  = "berth/docker"
      version = ">= 0.1.0"
    }
  }
}

variable "repo" {
  type        = string
  description = "owner/name of the repository to work on"
  default     = "acme/widgets"

  validation {
    condition     = can(regex("^[\\w.-]+/[\\w.-]+$", var.repo))
    error_message = "The repo variable must look like \"owner/name\"."
  }
}

variable "effort" {
  type    = string
  default = "medium"

  validation {
    condition     = contains(["low", "medium", "high"], var.effort)
    error_message = "The effort variable must be low, medium or high."
  }
}

locals {
  workspace = "/workspace"
  checkout  = "repo"
}

secret "openai" {
  env = "OPENAI_API_KEY"
}

model_provider "openai" {
  api_key = secret.openai
  api     = "responses"
}

manifest "repo" {
  root = local.workspace

  git_repo "repo" {
    repo = var.repo
    ref  = "main"
  }

  file "TASK.md" {
    content = <<-EOT
      # Task
      Work in the `${local.checkout}` directory.
    EOT
  }

  local_dir "notes" {
    source      = "./notes"
    permissions = "0755"
    group       = "devs"
  }

  environment = {
    CI     = "1"
    EDITOR = "true"
  }

  env "GITHUB_TOKEN" {
    value     = secret.github
    ephemeral = true
  }

  user "agent" {}

  group "devs" {
    users = ["agent"]
  }
}

secret "github" {
  command  = ["gh", "auth", "token"]
  optional = true
}

sandbox "dev" {
  driver = "docker"

  config {
    image        = "python:3.14-slim"
    network_mode = "none"
    labels       = { team = "tools" }
  }

  exposed_ports = [8000]

  snapshot "local" {
    dir     = "./.berth/snapshots"
    persist = "on_stop"
  }

  session {
    source = "resume_or_create"
    key    = "dev-${var.repo}"
  }

  limits {
    manifest_entries = 8
    local_dir_files  = 8
  }
}

agent "coder" {
  model        = "gpt-5.6"
  instructions = file("prompts/coder.md")
  manifest     = manifest.repo
  run_as       = "agent"

  model_settings {
    parallel_tool_calls = true
    verbosity           = "low"

    reasoning {
      effort = var.effort
    }
  }

  capabilities {
    shell {
      default_shell = ["bash", "-lc"]
    }
    filesystem {}
    compaction {
      policy "dynamic" {
        threshold = 0.9
      }
    }
    skills {
      lazy_from "local_dir" {
        source = "./skills"
      }
    }
  }

  approvals {
    default = "allow"

    rule "shell" {
      tools    = ["exec_command"]
      match    = ["^git push", "\\brm -rf\\b"]
      decision = "ask"
      reason   = "Pushes and recursive deletes need a person."
    }
  }
}

run "default" {
  agent     = agent.coder
  sandbox   = sandbox.dev
  max_turns = 60
  cwd       = local.checkout
}
