# An agent over berth's own source: it searches it and the modules that it needs, thousands of files, patches one, lets
# the compiler's checks run in the sandbox and reports the difference.
#
#   mkdir -p /tmp/berth-go-cache
#   berth run --var modules="$(go env GOMODCACHE)" --var build_cache=/tmp/berth-go-cache \
#     --replay examples/checkout/transcript.jsonl examples/checkout

variable "modules" {
  type        = string
  description = "Go's module cache on this machine; the sandbox may read it."
  env         = ["GOMODCACHE"]
}

variable "build_cache" {
  type        = string
  description = "A directory of this example's own, where Go keeps what it compiles from one run to the next."
}

manifest "source" {
  local_dir "berth" {
    source    = "../.."
    gitignore = true
    symlinks  = "skip"
  }

  path_grant "/modules" {
    host_path   = var.modules
    description = "Go modules that the source needs."
  }

  path_grant "/build-cache" {
    host_path   = var.build_cache
    read_only   = false
    description = "What Go has compiled before."
  }

  environment = {
    CGO_ENABLED = "0"
    GOMODCACHE  = "/modules"
    GOCACHE     = "/build-cache"
    GOPROXY     = "off"
    GOFLAGS     = "-mod=mod -buildvcs=false"
    GOTOOLCHAIN = "local"
  }
}

agent "maintainer" {
  instructions = "You maintain this Go repository. Keep changes small, run go vet on what you changed, and report the diff."
  manifest     = manifest.source
}

run "default" {
  agent = agent.maintainer
  cwd   = "berth"
  input = "Say in the documentation of version.String that the leading v of a tag is left out. Vet the package and show the diff."
}
