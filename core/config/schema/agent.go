// SPDX-License-Identifier: Apache-2.0

package schema

import "github.com/zclconf/go-cty/cty"

func servers() *Block {
	http := func(terminate bool) *Body {
		b := body(
			str("url", "Its address.", required, example(`"https://tickets.example.com/mcp"`)),
			mapping("headers", "Headers of each request.", secret, example(`{ Authorization = "Bearer ${secret.tickets}" }`)),
			dur("timeout", "Bound of a request.", defText("5s"), example(`"20s"`)),
			dur("read_timeout", "Bound of a silent stream.", defText("5m"), example(`"10m"`)))
		if terminate {
			add(b, boolean("terminate_on_close", "End the server's session at the end.", def(true), example("false")))
		}
		return b
	}
	return block("mcp_server", "A server of the Model Context Protocol.", kind("kind", "stdio", "streamable_http", "sse", "hosted"), name(), extends,
		boolean("cache_tools", "Ask for the tools once in a process, not once in a run.", def(false), example("true")),
		dur("session_timeout", "Bound of a call; news of its progress starts it anew.", defText("1m"), example(`"5m"`)),
		dur("connect_timeout", "Bound of connecting.", defText("10s"), example(`"30s"`)),
		boolean("use_structured_content", "Give the structured result to the model.", def(false), example("true")),
		boolean("strict_schemas", "Make the schemas of the tools strict where they can be.", def(false), example("true")),
		enum("prefix_tools", "Put the server's name before those of its tools; auto = where two tools have one name.", []string{"auto", "always", "never"}, def("auto"), example(`"always"`)),
		boolean("required", "A server that cannot be reached fails the run.", def(true), example("false")),
		str("pin", "SHA-256 of the tool list that was approved; an error says which one a server has.", pattern(`^[0-9a-f]{64}$`), example(`"3f1a..."`)),
		single("retry", "When a call is repeated whose connection broke; it may have been made.",
			num("max_attempts", "How often.", def(0.0), atLeast(0), example("2")),
			dur("backoff_base", "The first wait.", defText("1s"), example(`"2s"`)),
			dur("backoff_max", "The longest wait.", example(`"30s"`))),
		single("tool_filter", "Which tools are offered, by glob.",
			list("allow", "Only these.", example(`["search_*"]`)),
			list("block", "Not these.", example(`["delete_*"]`))),
		single("approval", "Which tools need a person, by glob.",
			list("require", "These do.", example(`["close_ticket"]`)),
			list("never", "These do not.", example(`["read_*"]`))),
		byLabel(map[string]*Body{
			"stdio": body(
				list("command", "Program and arguments.", required, example(`["uvx", "mcp-sqlite"]`)),
				mapping("env", "Its environment.", secret, example(`{ TOKEN = secret.tracker }`)),
				str("cwd", "Its directory.", example(`"tools"`)),
				enum("run_in", "Where it runs.", []string{"sandbox", "host"}, def("sandbox"), example(`"host"`))),
			"streamable_http": http(true),
			"sse":             http(false),
			"hosted": body(
				str("server_url", "Its address.", example(`"https://mcp.example.com"`)),
				str("connector_id", "A connector of the provider.", example(`"connector_gmail"`)),
				str("server_label", "Name shown to the model.", defText("the label"), example(`"tickets"`)),
				mapping("headers", "Headers of each request.", secret, example(`{ Authorization = secret.tickets }`)),
				exactlyOne{"server_url", "connector_id"}),
		}))
}

func tools() *Block {
	return block("tool", "Something that the model can do.", kind("kind", "go", "command", "http", "hosted", "mcp"), name(),
		str("description", "What it does; for the model.", example(`"Render a chart."`)),
		typeExpr("parameters", "Type of its arguments; doc(\"text\", type) describes one.", example("object({ csv = string })")),
		boolean("strict", "The model must follow the schema exactly.", defText("true where every attribute is required"), example("false")),
		boolExpr("needs_approval", "A person must agree; may look at the arguments.", param, runtime, example(`param.amount > 100`)),
		dur("timeout", "Bound of one call.", defText("60s"), example(`"2m"`)),
		enum("on_timeout", "What the model sees after a timeout.", []string{"error_as_result", "fail"}, def("error_as_result"), example(`"fail"`)),
		boolean("defer_loading", "Offer it only when it is searched for.", def(false), example("true")),
		expr("enabled", "Offer it only when true.", runtime, example("run.vars.charts")),
		refs("input_guardrails", "guardrail", "Checks of the arguments.", example("[guardrail.tool_input.safe]")),
		refs("output_guardrails", "guardrail", "Checks of the result.", example("[guardrail.tool_output.safe]")),
		byLabel(map[string]*Body{
			"go": body(single("config", "Settings of the registered function.", openBody(Secret, "A setting."))),
			"command": body(
				list("command", "Program and arguments; no shell. Elements that are null are left out.", required, param, runtime, example(`["python", "plot.py", param.csv]`)),
				enum("target", "Where it runs.", []string{"sandbox", "host"}, def("sandbox"), example(`"host"`)),
				str("cwd", "Its directory; relative to that of commands, on the host to the project.", example(`"tools"`)),
				mapping("env", "Its environment.", secret, param, runtime, example(`{ MODE = "fast" }`)),
				expr("stdin", "Its input.", param, runtime, example("param.text")),
				enum("output", "How the output is read; file = it is the path of a file whose content is meant.", []string{"text", "json", "file"}, def("text"), example(`"json"`)),
				size("max_output", "Output that is kept of each stream, half of it of the end.", defText("64KiB"), example(`"1MiB"`))),
			"http": {
				Attrs: []*Attr{
					str("url", "Its address.", required, param, runtime, example(`"https://api.example.com/${param.id}"`)),
					enum("method", "Method of the request.", []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"}, def("GET"), example(`"POST"`)),
					mapping("headers", "Its headers.", secret, param, runtime, example(`{ Authorization = secret.api }`)),
					expr("body", "Its body.", param, runtime, example(`jsonencode({ id = param.id })`)),
					list("allow_hosts", "Hosts that may be reached.", defText("the url's, where that is fixed"), example(`["api.example.com"]`)),
				},
			},
			"hosted": body(
				enum("type", "Which tool of the provider.", []string{"web_search", "file_search", "code_interpreter", "image_generation", "tool_search", "mcp"}, required, example(`"web_search"`)),
				list("allowed_domains", "web_search: only these.", example(`["example.com"]`)),
				str("search_context_size", "web_search: how much to read.", example(`"medium"`)),
				boolean("external_access", "web_search: reach the live web.", example("true")),
				list("vector_store_ids", "file_search: stores to search.", example(`["vs_1"]`)),
				num("max_results", "file_search: results.", atLeast(1), example("10")),
				boolean("include_results", "file_search: give the results too.", example("true")),
				anything("filters", "file_search: filter over attributes.", example(`{ type = "eq", key = "year", value = 2026 }`)),
				anything("container", "code_interpreter: its container.", example(`{ type = "auto" }`)),
				str("model", "image_generation: the model.", example(`"gpt-image-1"`)),
				str("size", "image_generation: size of the image.", example(`"1024x1024"`)),
				str("quality", "image_generation: its quality.", example(`"high"`)),
				str("background", "image_generation: its background.", example(`"transparent"`)),
				single("user_location", "web_search: where the user is.",
					str("country", "Country, two letters.", example(`"DE"`)), str("region", "Region.", example(`"Bavaria"`)),
					str("city", "City.", example(`"Munich"`)), str("timezone", "Time zone.", example(`"Europe/Berlin"`))),
				single("ranking", "file_search: how results are ranked.",
					str("ranker", "The ranker.", example(`"auto"`)), num("score_threshold", "Lowest score.", fraction, between(0, 1), example("0.5")))),
			"mcp": body(
				ref("server", "mcp_server", "The server.", required, example("mcp_server.stdio.sql")),
				str("tool", "Name of the tool there.", required, example(`"query"`)),
				anything("defaults", "Arguments that are set already.", example(`{ limit = 10 }`))),
		}))
}

func guards() []*Block {
	return []*Block{
		block("guardrail", "A check that can stop a run.", kind("stage", "input", "output", "tool_input", "tool_output"), name(),
			ref("agent", "agent", "An agent that judges.", example("agent.classifier")),
			expr("tripwire", "True when its answer stops the run.", output, example("output.contains_pii")),
			str("regex", "A regular expression over the text.", example(`"\\[[0-9]+\\]"`)),
			enum("require", "What the expression must do.", []string{"match", "no_match"}, def("match"), example(`"no_match"`)),
			list("command", "A program that reads the text; exit code 0 = pass.", example(`["./check.sh"]`)),
			enum("target", "Where the program runs.", []string{"sandbox", "host"}, def("sandbox"), example(`"host"`)),
			str("go", "Name of a registered function.", example(`"no_pii"`)),
			str("message", "What is said when it trips.", example(`"Cite a source."`)),
			boolean("parallel", "Check while the agent works already (stage input).", defText("true"), example("false")),
			enum("on_trip", "Stop the run, or tell the model (tool stages).", []string{"halt", "reject"}, def("halt"), example(`"reject"`)),
			exactlyOne{"agent", "regex", "command", "go"}),
		block("output_schema", "The form of an answer.", name(),
			typeExpr("type", "Type of the answer.", example("object({ score = number })")),
			str("json_schema", "The same as a JSON Schema.", example(`file("report.schema.json")`)),
			exactlyOne{"type", "json_schema"},
			boolean("strict", "The model must follow it exactly.", def(true), example("false")),
			str("description", "What the answer is.", example(`"A report."`)),
			num("retry", "How often an invalid answer is asked for again.", def(1.0), atLeast(0), example("2"))),
	}
}

func budget(doc string) *Block {
	return single("budget", doc,
		num("total_tokens", "Tokens of input and output.", atLeast(1), example("2000000")),
		num("cost_usd", "Cost in dollars.", fraction, atLeast(0), example("5")),
		dur("wall_time", "Time.", example(`"2h"`)),
		num("tool_calls", "Tool calls.", atLeast(1), example("500")))
}

func approvals() *Block {
	return single("approvals", "Which tool calls need a person.",
		enum("default", "When no rule matches; auto = each tool's own setting.", []string{"auto", "allow", "ask", "deny"}, def("auto"), example(`"allow"`)),
		dur("keep_for", "How long a run waits for an answer with its sandbox as it is; then it pauses, and the sandbox ends as its session says.",
			defText("15m at a terminal, else 0s"), example(`"1h"`)),
		enum("rules", "With extends: where these rules stand beside the parent's.", []string{"append", "prepend"}, def("append"), example(`"prepend"`)),
		block("rule", "The first rule that matches decides.", name(),
			list("tools", "Globs of tool names.", example(`["exec_command"]`)),
			refs("mcp_servers", "mcp_server", "Tools of these servers.", example("[mcp_server.stdio.sql]")),
			refs("agents", "agent", "Calls of these agents.", example("[agent.coder]")),
			list("match", "Regular expressions over the command, else over the JSON arguments.", example(`["^git push"]`)),
			list("paths", "Globs of paths in the workspace, for file tools.", example(`["deploy/**"]`)),
			enum("decision", "What happens.", []string{"allow", "ask", "deny"}, required, example(`"ask"`)),
			boolean("enabled", "Whether the rule counts.", def(true), example("false")),
			str("reason", "Shown to the person, or to the model.", example(`"Pushes need a person."`)),
			enum("remember", "How long an answer counts.", []string{"call", "run", "session"}, def("call"), example(`"run"`))))
}

func agents() *Block {
	return block("agent", "What to do.", name(), extends,
		str("name", "Name that is shown.", defText("the label"), example(`"Coder"`)),
		str("description", "What it is good at.", example(`"Fixes bugs."`)),
		str("handoff_description", "When other agents should hand over to it.", example(`"Reads the data set."`)),
		boolean("sandboxed", "It works in a sandbox.", def(true), example("false")),
		modelRef("model", "Its model: a block, a name, or PROVIDER/name.", defText("the provider's"), example("model.deep")),
		str("instructions", "What it is told.", runtime, example(`file("prompts/coder.md")`)),
		str("base_instructions", "Replaces the built-in prompt; \"\" = none.", runtime, example(`""`)),
		ref("manifest", "manifest", "What its workspace holds at first.", example("manifest.repo")),
		str("run_as", "User of the sandbox that its commands run as.", pattern(userName), example(`"agent"`)),
		refs("tools", "tool", "Its tools.", example("[tool.command.plot]")),
		refs("mcp_servers", "mcp_server", "Its servers.", example("[mcp_server.stdio.sql]")),
		refs("handoffs", "agent", "Agents it can hand over to; a handoff block says more.", example("[agent.lead]")),
		refs("input_guardrails", "guardrail", "Checks of what comes in.", example("[guardrail.input.no_pii]")),
		refs("output_guardrails", "guardrail", "Checks of the answer.", example("[guardrail.output.cites]")),
		ref("output_schema", "output_schema", "Form of the answer.", defText("text"), example("output_schema.report")),
		enum("tool_use_behavior", "When a tool ends the turn.", []string{"run_llm_again", "stop_on_first_tool", "stop_at_tools"}, def("run_llm_again"), example(`"stop_on_first_tool"`)),
		list("stop_at_tools", "Tools that end the turn.", example(`["submit"]`)),
		boolean("reset_tool_choice", "Forget a forced tool after it was called.", defText("true"), example("false")),
		settingsBlock("model_settings", "Settings over those of the model."),
		single("prompt", "A prompt that the provider keeps.",
			str("id", "Its id.", required, example(`"pmpt_1"`)),
			str("version", "Its version.", example(`"2"`)),
			mapping("variables", "Its variables.", example(`{ name = "x" }`))),
		block("agent_tool", "Another agent as a tool.", name(),
			ref("agent", "agent", "The agent.", required, example("agent.classifier")),
			str("description", "What it does; for the model.", example(`"Classify one document."`)),
			num("max_turns", "Bound of its turns.", def(10.0), atLeast(1), example("3")),
			expr("enabled", "Offer it only when true.", runtime, example("run.vars.deep")),
			boolean("needs_approval", "A person must agree.", def(false), example("true")),
			typeExpr("parameters", "Type of its arguments.", defText("one text"), example("object({ topic = string })")),
			boolean("include_schema", "Tell the agent the type of its arguments.", def(false), example("true")),
			enum("workspace", "Which workspace it works in.", []string{"shared", "clone", "own", "none"}, def("shared"), example(`"none"`)),
			enum("history", "What it sees of the conversation.", []string{"none", "full"}, def("none"), example(`"full"`)),
			expr("output", "What of its answer the model sees.", output, runtime, example("output.summary")),
			budget("Bounds of one call.")),
		block("handoff", "Another agent takes over.", name(),
			ref("agent", "agent", "The agent.", required, example("agent.analyst")),
			str("tool_name", "Name of the tool.", defText("transfer_to_NAME"), pattern(`^[A-Za-z0-9_-]{1,64}$`), example(`"to_analyst"`)),
			str("description", "When to hand over; for the model.", example(`"Pass the data questions on."`)),
			typeExpr("input", "Type of what is handed over.", example("object({ reason = string })")),
			str("input_filter", "none, remove_all_tools, or the name of a registered function.", def("none"), example(`"remove_all_tools"`)),
			enum("history", "What the other agent sees.", []string{"full", "nested", "last", "none"}, def("full"), example(`"nested"`)),
			enum("workspace", "Which workspace it works in.", []string{"shared", "own"}, def("shared"), example(`"own"`)),
			boolean("needs_approval", "A person must agree.", def(false), example("true")),
			expr("enabled", "Offer it only when true.", runtime, example("run.vars.deep"))),
		capabilities(),
		approvals(),
		single("hooks", "Registered functions that are called.",
			str("on_start", "When the agent starts.", example(`"audit"`)), str("on_end", "When it ends.", example(`"audit"`)),
			str("on_tool", "Around each tool call.", example(`"audit"`)), str("on_handoff", "At a handoff.", example(`"audit"`))))
}

func capabilities() *Block {
	return single("capabilities", "What the sandbox adds to the agent. A block inside replaces the default set.",
		boolean("defaults", "Keep the default set beside the blocks.", def(false), example("true")),
		single("shell", "Run commands.",
			list("default_shell", "Shell for commands.", defText("bash -lc, else sh -lc"), example(`["bash", "-lc"]`)),
			dur("yield_time", "How long to wait before a command goes on in the background.", def("10s"), example(`"30s"`)),
			num("max_output_tokens", "Output that the model sees.", atLeast(1), defText("10000"), example("4000")),
			mapping("env", "More environment of commands.", pattern(envName), example(`{ PAGER = "cat" }`))),
		single("filesystem", "Patch files and look at images.",
			boolean("apply_patch", "Offer the patch tool.", def(true), example("false")),
			boolean("view_image", "Offer the image tool.", def(true), example("false"))),
		single("compaction", "Shorten long transcripts.",
			single("policy", "When to shorten.", kind("kind", "static", "dynamic"),
				byLabel(map[string]*Body{
					"static": body(num("threshold", "Tokens.", def(240000.0), atLeast(1), example("200000"))),
					"dynamic": body(num("threshold", "Part of the context.", fraction, def(0.9), between(0, 1), example("0.8")),
						num("context_window", "Tokens that fit.", atLeast(1), example("400000"))),
				}))),
		single("skills", "Give the agent skills.",
			str("path", "Where they are in the workspace.", def(".agents"), example(`".agents"`)),
			block("skill", "A skill that is written here.", name(),
				str("description", "When to use it.", required, example(`"Make charts."`)),
				str("content", "What it says.", required, example(`file("skills/charts.md")`)),
				str("compatibility", "What it needs.", example(`"python >= 3.12"`)),
				boolean("deferred", "Read only when needed.", def(false), example("true")),
				entries()),
			single("from", "Where skills are copied from.", kind("kind", "local_dir", "git_repo", "mount"), byLabel(skillSources(true))),
			single("lazy_from", "Where skills are read from when they are needed.", kind("kind", "local_dir", "git_repo"), byLabel(skillSources(false))),
			exactlyOne{"skill", "from", "lazy_from"}),
		single("memory", "Remember over runs.",
			str("memories_dir", "Where memories are.", defText("memories"), example(`"memories"`)),
			str("sessions_dir", "Where sessions are.", defText("sessions"), example(`"sessions"`)),
			single("read", "Read memories.",
				boolean("live_update", "Let the agent mend what is out of date.", def(true), example("false"))),
			single("generate", "Write memories.",
				num("max_raw_memories_for_consolidation", "Bound of what is merged.", def(256.0), between(1, 4096), example("128")),
				modelRef("phase_one_model", "Model that extracts.", example(`"gpt-5.4-mini"`)),
				modelRef("phase_two_model", "Model that merges.", example("model.deep")),
				str("extra_prompt", "What else it is told.", example(`"Prefer facts."`)),
				settingsBlock("phase_one_settings", "Settings of the first model."),
				settingsBlock("phase_two_settings", "Settings of the second model."))),
		block("plugin", "A registered capability.", name(), openBody(0, "A setting of the capability.")))
}

func skillSources(mounts bool) map[string]*Body {
	out := map[string]*Body{
		"local_dir": body(localDir()),
		"git_repo":  body(gitRepo()...),
	}
	if mounts {
		out["mount"] = body(enum("kind", "Kind of storage.", MountKinds(), required, example(`"s3"`)),
			anything("fields", "Its fields.", example(`{ bucket = "skills" }`)),
			mapping("credentials", "Who reaches it.", secret, example(`{ access_key_id = secret.storage }`)))
	}
	return out
}

func runs() *Block {
	return block("run", "A piece of work to start.", name(),
		ref("agent", "agent", "Who starts.", required, example("agent.coder")),
		ref("sandbox", "sandbox", "Where it works.", defText("the default driver"), example("sandbox.dev")),
		ref("manifest", "manifest", "What the workspace holds.", defText("the agent's"), example("manifest.repo")),
		str("input", "What to do.", example(`"Fix the failing test."`)),
		num("max_turns", "Bound of the turns; 0 = none.", atLeast(0), defText("10"), example("60")),
		str("cwd", "Directory of commands, relative to the workspace.", example(`"repo"`)),
		modelRef("model", "Model of every agent that names none.", example("model.deep")),
		settingsBlock("model_settings", "Settings over those of the agents."),
		refs("input_guardrails", "guardrail", "Checks of the input.", example("[guardrail.input.no_pii]")),
		refs("output_guardrails", "guardrail", "Checks of the answer.", example("[guardrail.output.cites]")),
		str("workflow_name", "Name in traces.", example(`"Quarterly report"`)),
		single("conversation", "A conversation that the provider keeps.",
			str("id", "Its id.", example(`"conv_1"`)), str("previous_response_id", "The response to go on from.", example(`"resp_1"`)),
			atMostOne{"id", "previous_response_id"}),
		single("session", "A conversation that berth keeps.",
			str("store", "Its store.", example(`"default"`)),
			str("id", "Its id.", runtime, example(`"user-${run.vars.user}"`)),
			num("limit", "Newest items to read.", atLeast(1), example("100"))),
		enum("handoff_history", "What the next agent sees.", []string{"full", "nested", "last", "none"}, example(`"nested"`)),
		single("tool_execution", "How tools are run.",
			num("max_concurrency", "Calls at the same time.", atLeast(1), example("4")),
			boolean("guardrails_before_approval", "Check before asking a person.", def(false), example("true"))),
		enum("on_unknown_tool", "When the model calls a tool that does not exist.", []string{"return_error", "raise"}, def("return_error"), example(`"raise"`)),
		enum("on_tool_name_collision", "When two tools have one name.", []string{"error", "warn"}, def("error"), example(`"warn"`)),
		enum("reasoning_item_ids", "Whether ids of reasoning items are sent back.", []string{"preserve", "omit"}, example(`"omit"`)),
		budget("Bounds of the run."),
		approvals(),
		single("trace", "What is recorded.",
			boolean("disabled", "Record nothing.", def(false), example("true")),
			str("id", "Id of the trace.", example(`"trace_1"`)), str("group_id", "Id of the group.", example(`"report-1"`)),
			anything("metadata", "More values.", typed(cty.DynamicPseudoType), example(`{ team = "research" }`)),
			boolean("include_sensitive_data", "Record inputs and outputs too.", def(false), example("true")),
			boolean("include_turn_spans", "Record each turn.", defText("true"), example("false")),
			str("api_key", "Key of the trace service.", secret, example("secret.traces"))),
		anything("vars", "Values that expressions use as run.vars.NAME.", example(`{ user = "ada" }`)))
}
