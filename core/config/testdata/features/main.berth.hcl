# Everything that the other examples do not use.

variable "token" {
  type      = string
  sensitive = true
}

variable "tags" {
  type = object({ team = string, size = optional(number, 3) })
  default = {
    team = "tools"
  }
}

locals {
  header = "Bearer ${var.token}"
  people = ["ada", "bob"]
  secret = { one = secret.api, two = "plain" }
}

secret "api" {
  env = "TOKEN"
}

function "greet" {
  params         = [who]
  variadic_param = rest
  result         = "hi ${who}${length(rest) > 0 ? "!" : ""}"
}

module "team" {
  source = "./team"
  token  = secret.api
  size   = var.tags.size
}

model_provider "local" {
  api      = "chat_completions"
  base_url = "http://localhost:1/v1"

  headers = {
    Authorization = local.header
    "X-Size"      = module.team.size
    "X-Token"     = module.team.token
  }
}

model "base" {
  provider       = model_provider.local
  name           = "small"
  context_window = 1000

  settings {
    metadata = { a = "1", b = "2" }
    reasoning {
      effort = "low"
    }
  }
}

model "child" {
  extends = model.base

  settings {
    metadata = { b = null, c = "3" }
    reasoning {
      summary = "auto"
    }
  }
}

manifest "base" {
  environment = { A = "1", B = "2" }

  file "TASK.md" {
    content = "parent"
  }

  file "KEEP.md" {
    content = "kept $${literal} %%{literal}"
  }

  env "TOKEN" {
    value = local.header
  }

  env "USERS" {
    value = "${join(",", local.people)} in ${run.id}"
  }
}

manifest "child" {
  extends     = manifest.base
  remove      = ["file.TASK.md"]
  environment = { B = null, C = "3" }

  dynamic "file" {
    for_each = toset(local.people)
    iterator = person
    labels   = ["people/${person.value}.md"]

    content {
      content = greet(person.value)
    }
  }

  dynamic "env" {
    for_each = local.secret
    labels   = ["S_${upper(each.key)}"]

    content {
      value = each.value
    }
  }

  file "KEEP.md" {
    executable = true
  }
}

driver "docker" {
  env = { TOKEN = secret.api }
}

sandbox "base" {
  driver = "docker"

  config {
    image  = "debian:12"
    labels = { a = "1", b = "2" }
    memory = "512MiB"
    token  = secret.api

    dynamic "volume" {
      for_each = { cache = "/c", data = "/d" }
      labels   = [each.key]

      content {
        path = each.value
      }
    }
  }

  exposed_ports = [8080, { port = 9090, protocol = "tcp" }]

  timeouts {
    create = "90s"
    exec   = 0
  }
}

sandbox "child" {
  extends = sandbox.base

  config {
    labels = { b = null, c = "3" }

    volume "data" {
      path = "/other"
    }
  }

  session {
    source = "resume_or_create"
    key    = "k-${run.vars.user}-${local.people[0]}"
  }
}

tool "command" "plot" {
  description = "Plots."
  command     = ["plot", param.csv, "--user", local.people[1], "--hi", greet("x", "y")]
  env         = { KEY = secret.api, MODE = "fast" }

  parameters = object({
    csv = doc("The file.", string)
    n   = optional(number, 2)
  })

  needs_approval = param.n > 2
}

agent "base" {
  model        = model.child
  instructions = "Hello\n"

  approvals {
    rule "first" {
      tools    = ["a"]
      decision = "ask"
    }
  }
}

agent "coder" {
  extends  = agent.base
  manifest = manifest.child
  tools    = [tool.command.plot]
  handoffs = [module.team.agent.helper, agent.base]

  approvals {
    rules = "prepend"

    rule "second" {
      tools    = ["b"]
      decision = "deny"
    }
  }
}

run "default" {
  agent   = agent.coder
  sandbox = sandbox.child
  vars    = { user = "ada" }
}
