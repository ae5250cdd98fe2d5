agent "helper" {
  instructions = "Answer with what you find out by running commands in your sandbox."
}
