// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"sync"

	"github.com/zclconf/go-cty/cty"
)

// Root gives the top-level body.
func Root() *Body { return root() }

var root = sync.OnceValue(func() *Body {
	b := &Body{}
	for _, p := range []any{base(), models(), drivers(), manifests(), sandboxes(), servers(), tools(), guards(), agents(), runs()} {
		add(b, p)
	}
	return b
})

// base holds the blocks that are about the project itself.
func base() []*Block {
	return []*Block{
		single("berth", "What the project needs of berth.",
			str("required_version", "Versions of berth that can read the project.", example(`">= 0.1"`)),
			num("language", "Version of the configuration language.", def(1.0), between(1, 1), example("1")),
			single("required_drivers", "Drivers that the project uses, each NAME = { source, version }.",
				openBody(0, "A driver: its source \"namespace/name\" and a version constraint.")),
		),
		block("locals", "Named values that other expressions use as local.NAME.",
			openBody(Secret, "A value.")),
		block("variable", "A value that whoever starts the project may set.", name(),
			typeExpr("type", "Type of the value, for example list(string).", defText("that of the default, else any"), example("string")),
			anything("default", "Value when nobody sets one; without it the variable must be set. It cannot refer to anything.", example(`"medium"`)),
			str("description", "What the variable is for; shown when it is missing.", example(`"owner/name of the repository"`)),
			boolean("sensitive", "The value is never shown.", def(false), example("true")),
			boolean("ephemeral", "The value is never stored; it is asked for again when a run is resumed.", def(false), example("true")),
			boolean("nullable", "null is a value; otherwise null means the default.", def(false), example("true")),
			list("env", "More environment variables that may hold the value.", example(`["CUSTOMER"]`)),
			block("validation", "A condition that the value must meet.",
				expr("condition", "True when the value is good.", required, example(`contains(["low", "high"], var.effort)`)),
				str("error_message", "What is wrong when the condition is false.", required, example(`"Must be low or high."`)),
			),
		),
		block("secret", "A text that is fetched when it is needed and never shown or stored.", name(), hostBlock,
			str("env", "Environment variable that holds it.", example(`"OPENAI_API_KEY"`)),
			str("file", "File that holds it; others must not be able to read it.", example(`"~/.config/app/token"`)),
			list("command", "Program and arguments whose output it is; no shell.", example(`["gh", "auth", "token"]`)),
			str("store", "Name in a secret store of the host configuration.", example(`"vault"`)),
			exactlyOne{"env", "file", "command", "store"},
			enum("format", "How the text is read: json and dotenv give secret.NAME.FIELD.", []string{"text", "json", "dotenv"}, def("text"), example(`"json"`)),
			boolean("trim", "Take one newline off the end.", def(true), example("false")),
			boolean("optional", "A missing secret is null, and what it is for is left out.", def(false), example("true")),
			dur("ttl", "Fetch it again when it is older than this.", example(`"15m"`)),
			str("description", "What the secret is for.", example(`"Token of the tracker."`)),
		),
		block("function", "A function of your own.", name(),
			attr("params", "Names of the parameters.", Names, cty.DynamicPseudoType, []opt{required, example("[a, b]")}),
			attr("variadic_param", "Name that takes the remaining arguments.", Names, cty.DynamicPseudoType, []opt{example("rest")}),
			expr("result", "What the function gives; only its parameters are known here.", required, example(`"${a}-${b}"`)),
		),
		block("module", "Blocks of another directory of the project, with values for its variables.", name(),
			attr("source", "Directory of the module, inside the project.", Literal, cty.String, []opt{required, example(`"./modules/team"`)}),
			openBody(Secret, "Value of a variable of the module."),
		),
		block("output", "A value that a module gives to those who use it, as module.NAME.OUTPUT.", name(),
			anything("value", "The value.", required, secret, example("local.region")),
			boolean("sensitive", "The value is never shown.", def(false), example("true")),
			str("description", "What the value is.", example(`"Region of the bucket."`)),
		),
	}
}

// settings is the body of settings and model_settings.
func settings() []any {
	return []any{
		num("temperature", "Sampling temperature.", fraction, between(0, 2), example("0.2")),
		num("top_p", "Nucleus sampling.", fraction, between(0, 1), example("0.9")),
		num("frequency_penalty", "Penalty for repeated tokens.", fraction, between(-2, 2), example("0")),
		num("presence_penalty", "Penalty for tokens that have occurred.", fraction, between(-2, 2), example("0")),
		str("tool_choice", "auto, required, none, or the name of a tool that must be called.", example(`"auto"`)),
		boolean("parallel_tool_calls", "The model may call several tools at once.", example("true")),
		enum("truncation", "What happens when the context is full.", []string{"auto", "disabled"}, example(`"auto"`)),
		num("max_tokens", "Bound of the answer.", atLeast(1), example("4096")),
		enum("verbosity", "How much the model writes.", []string{"low", "medium", "high"}, example(`"low"`)),
		boolean("store", "The provider may keep the answer.", example("false")),
		mapping("metadata", "Texts that are sent with each request.", example(`{ team = "tools" }`)),
		enum("prompt_cache_retention", "How long the provider keeps the prompt.", []string{"in_memory", "24h"}, example(`"24h"`)),
		boolean("include_usage", "Ask for token counts while streaming.", example("true")),
		boolean("preserve_raw_usage", "Keep the provider's own usage record.", example("true")),
		list("response_include", "More parts of the response.", example(`["reasoning.encrypted_content"]`)),
		num("top_logprobs", "Log probabilities per token.", between(0, 20), example("3")),
		dur("timeout", "Bound of one attempt.", example(`"10m"`)),
		anything("extra_query", "More query parameters.", example(`{ beta = "1" }`)),
		anything("extra_body", "More fields of the request.", example(`{ seed = 7 }`)),
		anything("extra_args", "More arguments of the client.", example(`{ seed = 7 }`)),
		mapping("extra_headers", "More headers.", secret, example(`{ "X-Team" = "tools" }`)),
		single("prompt_cache", "Use of the provider's prompt cache.",
			str("mode", "How the cache is used.", example(`"explicit"`)),
			dur("ttl", "How long an entry lives.", example(`"1h"`))),
		single("reasoning", "How hard the model thinks.",
			enum("effort", "Amount of reasoning. Models know different words.", []string{"none", "minimal", "low", "medium", "high", "xhigh"}, openEnum, example(`"high"`)),
			str("summary", "Summary of the reasoning: auto, concise or detailed.", example(`"auto"`))),
		single("retry", "When a call is repeated.",
			num("max_retries", "How often.", atLeast(0), example("4")),
			list("on", "What is repeated: network, retry_after, a status such as 429, or a class such as 5xx.", defText(`["network", "408", "409", "429", "5xx", "retry_after"]`), example(`["network", "5xx"]`)),
			single("backoff", "How long to wait before the next attempt.",
				dur("initial", "The first wait.", defText("250ms"), example(`"500ms"`)),
				dur("max", "The longest wait.", defText("2s, 30s after status 429"), example(`"30s"`)),
				num("multiplier", "How much each wait is longer than the last.", fraction, atLeast(1), defText("2"), example("2")),
				boolean("jitter", "Vary the waits.", defText("true"), example("true")))),
		block("context_management", "What the provider does when the context grows.",
			str("type", "The kind of management.", required, example(`"compaction"`)),
			num("compact_threshold", "Tokens from which it acts.", atLeast(1), example("200000"))),
	}
}

func settingsBlock(typ, doc string) *Block { return single(typ, doc, settings()...) }

func models() []*Block {
	return []*Block{
		block("model_provider", "A model service.", name(), hostBlock,
			enum("api", "Which interface it speaks; replay answers from a recorded transcript and needs no key.", []string{"responses", "chat_completions", "replay"}, def("responses"), example(`"chat_completions"`)),
			str("api_key", "Its key.", secret, defText("that of the environment"), example("secret.openai")),
			str("transcript", "File with the recorded answers, for api = \"replay\".", example(`"testdata/fix.jsonl"`)),
			str("base_url", "Its address.", example(`"http://localhost:8080/v1"`)),
			str("websocket_url", "Address of its websocket interface.", example(`"wss://api.example.com/v1"`)),
			str("organization", "Organization to bill.", example(`"org-1"`)),
			str("project", "Project to bill.", example(`"proj-1"`)),
			mapping("headers", "More headers of each request.", secret, example(`{ "X-Team" = "tools" }`)),
			mapping("query", "More query parameters of each request.", example(`{ "api-version" = "2026-01-01" }`)),
			dur("timeout", "Bound of a request.", defText("10m"), example(`"5m"`)),
			num("max_concurrent", "Requests at the same time.", atLeast(1), defText("16"), example("8")),
			single("rate_limit", "Bounds that all agents of the process share.",
				num("requests_per_minute", "Requests in a minute.", atLeast(1), example("500")),
				num("tokens_per_minute", "Tokens in a minute.", atLeast(1), example("200000"))),
			single("supports", "What the service can do, when berth cannot know.",
				boolean("hosted_tools", "Tools that the provider runs.", example("false")),
				boolean("custom_tools", "Tools with free-form input.", example("false")),
				boolean("image_tool_output", "Images in the results of tools.", example("false")),
				boolean("compaction", "Compaction by the provider.", example("false")),
				boolean("stored_prompt", "Prompts kept by the provider.", example("false")),
				boolean("reasoning", "Reasoning settings.", example("true")),
				boolean("parallel_tools", "Several tool calls at once.", example("true"))),
		),
		block("model", "A model with its settings.", name(), extends,
			ref("provider", "model_provider", "The service that has it.", defText("the only one"), example("model_provider.openai")),
			str("name", "The provider's name of the model.", required, example(`"gpt-5.6"`)),
			num("context_window", "Tokens that fit.", atLeast(1), example("400000")),
			refs("fallback", "model", "Models to try when this one cannot answer.", example("[model.small]")),
			settingsBlock("settings", "Settings of every call.")),
	}
}

func drivers() []*Block {
	return []*Block{
		block("driver", "How the process of a driver is configured.", name(), hostBlock,
			attr("uses", "Name in required_drivers; several blocks may use one driver with different accounts.", Literal, cty.String, []opt{defText("the label"), example(`"e2b"`)}),
			str("log_level", "What the driver logs.", example(`"warn"`)),
			mapping("env", "Environment of the process.", secret, example(`{ HTTPS_PROXY = "http://proxy:3128" }`)),
			dur("idle_timeout", "How long an unused process stays; 0 = for ever.", defText("10m"), example(`"5m"`)),
			num("max_sandboxes", "Sandboxes at the same time.", atLeast(1), example("20")),
			single("config", "The driver's own process settings.", driverBody("process"))),
		block("snapshot_store", "Where snapshots are kept.", kind("kind", append([]string{"local", "noop"}, remoteKinds...)...), name(), hostBlock,
			str("prefix", "Path inside the store.", example(`"snapshots/"`)),
			enum("compression", "How chunks are compressed.", []string{"zstd", "none"}, def("zstd"), example(`"none"`)),
			single("encryption", "Encrypt what is stored.",
				str("key", "The key.", required, secret, example("secret.snapshots"))),
			single("retention", "What is kept.",
				num("keep", "Newest snapshots to keep.", atLeast(1), example("10")),
				dur("max_age", "Oldest age to keep.", example(`"720h"`))),
			byLabel(storeBodies())),
	}
}
