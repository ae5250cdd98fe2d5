# Tools of MCP servers. Both servers run in the sandbox, confined like every command of the agent; they come from npm and are
# seen there through a path grant. Node.js is needed on this machine.
#
#   npm install --prefix ~/mcp @modelcontextprotocol/server-filesystem @modelcontextprotocol/server-memory
#   berth run examples/mcp --var modules=$HOME/mcp --replay examples/mcp/transcript.jsonl

variable "modules" {
  type        = string
  description = "Directory that holds node_modules with the servers."
}

manifest "team" {
  path_grant "/npm" {
    host_path = var.modules
  }

  file "team.md" {
    content = "Ada leads the compiler group. Grace works with Ada.\n"
  }
}

mcp_server "stdio" "files" {
  command         = ["node", "/npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", "/workspace"]
  connect_timeout = "1m"

  tool_filter {
    allow = ["read_*", "list_directory"]
  }
}

mcp_server "stdio" "graph" {
  command         = ["node", "/npm/node_modules/@modelcontextprotocol/server-memory/dist/index.js"]
  env             = { MEMORY_FILE_PATH = "/workspace/graph.jsonl" }
  connect_timeout = "1m"

  tool_filter {
    block = ["delete_*"]
  }
}

agent "librarian" {
  instructions = "You keep a graph of who works with whom."
  manifest     = manifest.team
  mcp_servers  = [mcp_server.stdio.files, mcp_server.stdio.graph]
}

run "default" {
  agent = agent.librarian
  input = "Put what team.md says into the graph, and tell me whom Grace works with."
}
