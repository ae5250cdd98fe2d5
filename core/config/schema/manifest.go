// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"github.com/zclconf/go-cty/cty"

	mounts "github.com/berth-dev/berth/mounts/spec"
)

// remoteKinds are the kinds of remote storage.
var remoteKinds = mounts.Kinds()

// MountKinds are the kinds of mount.
func MountKinds() []string { return append(append([]string(nil), remoteKinds...), "host", "plugin") }

const (
	envName  = `^[A-Za-z_][A-Za-z0-9_]*$`
	userName = `^[a-z_][a-z0-9_-]{0,31}$`
)

func manifests() *Block {
	return block("manifest", "What a fresh workspace holds.", name(), extends,
		str("root", "Workspace root inside the sandbox: absolute and clean.", def("/workspace"), example(`"/workspace"`)),
		mapping("environment", "Environment of every command.", pattern(envName), example(`{ CI = "1" }`)),
		boolean("own_by_run_as", "The agent's user owns the root and the entries.", def(false), example("true")),
		list("remote_mount_command_allowlist", "Commands that the agent is told to use on remote mounts.", defText("18 commands that read or copy"), example(`["ls", "cat"]`)),
		block("env", "One variable with its properties.", name(),
			str("value", "The value.", required, secret, runtime, example("secret.github")),
			boolean("ephemeral", "Never stored.", def(false), example("true")),
			boolean("sensitive", "Never shown.", defText("true when the value is"), example("true")),
			str("description", "What it is for; told to the agent.", example(`"Token for pushes."`))),
		block("user", "A user of the sandbox.", name()),
		block("group", "A group of the sandbox.", name(),
			list("users", "Its members.", def([]string{}), example(`["agent"]`))),
		block("path_grant", "A host path that the sandbox sees.", free(), hostBlock,
			str("host_path", "Path on the host.", defText("the same path"), example(`"/srv/models"`)),
			boolean("read_only", "The sandbox cannot write there.", def(true), example("false")),
			str("description", "What is there; told to the agent.", example(`"Shared model files."`))),
		entries(),
	)
}

// entries are the blocks for the workspace's entries; dir holds the same again.
func entries() []*Block {
	dir := block("dir", "A directory with its entries.", free(), common(false))
	all := []*Block{
		block("file", "A file with its content.", free(), common(false),
			str("content", "The text, byte for byte.", runtime, example(`"hello\n"`)),
			str("content_base64", "Content that is not text, in base64.", example(`"AAEC"`)),
			boolean("executable", "Mode 0755 instead of 0644.", def(false), example("true")),
			exactlyOne{"content", "content_base64"}),
		dir,
		block("local_file", "A copy of a host file.", free(), common(false),
			str("source", "The host file, relative to the configuration.", required, example(`"./config.yaml"`))),
		block("local_dir", "A copy of a host directory.", free(), common(false), localDir()),
		block("git_repo", "A checkout of a git repository.", free(), common(false), gitRepo()),
		mount(),
	}
	dir.Body.Blocks = append(dir.Body.Blocks, all...)
	return all
}

// common are the attributes of every entry.
func common(ephemeral bool) []*Attr {
	return []*Attr{
		str("description", "What it is; told to the agent.", example(`"The task."`)),
		boolean("ephemeral", "Left out of snapshots and made again at each resume.", def(ephemeral), example("true")),
		str("owner", "User that owns it.", example(`"agent"`)),
		str("group", "Group that owns it.", example(`"devs"`)),
		str("permissions", "Mode in octal.", defText("0755 for directories, 0644 for files"), pattern(`^0?[0-7]{3,4}$`), example(`"0644"`)),
	}
}

func localDir() []*Attr {
	return []*Attr{
		str("source", "The host directory, relative to the configuration.", required, example(`"./notes"`)),
		list("include", "Patterns of what to copy.", example(`["*.md"]`)),
		list("exclude", "Patterns of what to leave out, as in .gitignore.", example(`["node_modules/"]`)),
		boolean("gitignore", "Honour .gitignore files.", def(false), example("true")),
		enum("symlinks", "What to do with symbolic links; only those inside the tree can be kept.", []string{"error", "skip", "preserve"}, def("error"), example(`"preserve"`)),
		boolean("keep_modes", "Keep the modes of the files.", def(true), example("false")),
		size("max_size", "Largest total size.", example(`"512MiB"`)),
		num("max_files", "Largest number of files.", atLeast(1), example("20000")),
	}
}

func gitRepo() []any {
	return []any{
		str("host", "Server of the repository.", def("github.com"), example(`"gitlab.com"`)),
		str("repo", "The repository: owner/name, or an address.", required, example(`"acme/widgets"`)),
		str("ref", "Branch, tag or commit.", required, example(`"main"`)),
		str("subpath", "Only this directory of the repository.", example(`"docs"`)),
		num("depth", "Commits of history; 0 = all.", def(1.0), atLeast(0), example("50")),
		boolean("submodules", "Fetch submodules too.", def(false), example("true")),
		boolean("lfs", "Fetch large files.", def(false), example("true")),
		boolean("keep_git", "Keep the .git directory.", def(true), example("false")),
		single("credentials", "How to reach a private repository.",
			str("username", "User name.", secret, example(`"x-access-token"`)),
			str("token", "Password or token.", secret, example("secret.github"))),
	}
}

func mount() *Block {
	return block("mount", "Storage that appears in the workspace.", kind("kind", MountKinds()...), free(),
		common(true),
		str("mount_path", "Where it appears.", defText("the entry's path"), example(`"/data"`)),
		boolean("read_only", "The sandbox cannot write there.", def(true), example("false")),
		enum("on_failure", "What happens when it cannot be reached.", []string{"fail", "skip"}, def("fail"), example(`"skip"`)),
		enum("flush", "When writes are known to be stored.", []string{"tool", "turn", "snapshot", "none"}, def("turn"), example(`"tool"`)),
		strategy(),
		single("access", "How the files look.",
			str("uid", "Owner: sandbox, or a number.", def("sandbox"), example(`"1000"`)),
			str("gid", "Group: sandbox, or a number.", def("sandbox"), example(`"1000"`)),
			str("file_mode", "Mode of files in octal.", def("0644"), pattern(`^0?[0-7]{3,4}$`), example(`"0755"`)),
			str("dir_mode", "Mode of directories in octal.", def("0755"), pattern(`^0?[0-7]{3,4}$`), example(`"0700"`))),
		single("cache", "What is kept on the host.",
			enum("mode", "How much is kept.", []string{"auto", "off", "writes", "full"}, def("auto"), example(`"full"`)),
			size("max_size", "Largest size.", defText("2GiB"), example(`"4GiB"`)),
			dur("write_back", "How long a write may wait.", defText("1s"), example(`"5s"`)),
			dur("dir_ttl", "How long a listing is believed.", defText("30s"), example(`"5m"`)),
			num("streams", "Parallel reads of one file.", atLeast(1), defText("1"), example("1"))),
		single("limits", "Bounds of its operations.",
			dur("io_timeout", "Bound of one read or write.", defText("10s"), example(`"30s"`)),
			dur("connect_timeout", "Bound of connecting.", defText("5s"), example(`"10s"`)),
			num("retries", "Attempts after the first.", atLeast(0), defText("1"), example("3")),
			dur("probe_timeout", "Bound of the first look.", defText("10s"), example(`"20s"`)),
			dur("drain_timeout", "Bound of storing what is left.", defText("60s"), example(`"2m"`))),
		byLabel(mountBodies()))
}

func strategy() *Block {
	return single("strategy", "How the storage is brought in.",
		kind("name", "auto", "in_container", "docker_volume", "native", "host_rclone"),
		byLabel(map[string]*Body{
			"auto": body(list("allow", "Strategies that may be chosen, the best first.", example(`["host_rclone", "native"]`))),
			"in_container": body(single("pattern", "The tool inside the sandbox.", kind("name", "rclone", "mountpoint", "fuse", "s3files"),
				byLabel(patternBodies()))),
			"docker_volume": body(str("driver", "Volume plugin.", def("rclone"), example(`"rclone"`)),
				mapping("driver_options", "Options of the plugin.", example(`{ "vfs-cache-mode" = "off" }`))),
			"native":      {Open: true, Free: anything("*", "A setting of the vendor.", secret)},
			"host_rclone": {},
		}))
}

func patternBodies() map[string]*Body {
	return map[string]*Body{
		"rclone": body(
			enum("mode", "Kind of file system.", []string{"fuse", "nfs"}, def("fuse"), example(`"nfs"`)),
			str("remote_name", "Name of the remote in the configuration.", example(`"data"`)),
			list("extra_args", "More arguments.", example(`["--vfs-cache-mode", "writes"]`)),
			str("nfs_addr", "Address of the NFS server.", example(`"127.0.0.1:2049"`)),
			str("nfs_mount_options", "Options of the NFS mount.", example(`"nolock"`)),
			str("config_file", "Configuration file inside the sandbox.", example(`"/etc/rclone.conf"`)),
			str("vfs_cache_mode", "Cache mode.", example(`"writes"`))),
		"mountpoint": {Open: true, Free: str("*", "An option of mount-s3.")},
		"fuse": body(
			boolean("allow_other", "Other users may look.", def(true), example("false")),
			str("log_type", "Where it logs.", def("syslog"), example(`"base"`)),
			str("log_level", "What it logs.", def("log_debug"), example(`"log_err"`)),
			enum("cache_type", "Kind of cache.", []string{"block_cache", "file_cache"}, def("block_cache"), example(`"file_cache"`)),
			str("cache_path", "Directory of the cache.", example(`"cache"`)),
			num("cache_size_mb", "Size of the cache.", atLeast(0), example("4096")),
			num("block_cache_block_size_mb", "Size of one block.", def(16.0), atLeast(1), example("32")),
			dur("block_cache_disk_timeout", "How long a block stays.", defText("3600s"), example(`"10m"`)),
			dur("file_cache_timeout", "How long a file stays.", defText("120s"), example(`"10m"`))),
		"s3files": body(mapping("options", "Mount options.", example(`{ region = "eu-west-1" }`))),
	}
}

// remoteBody gives fields and credentials of a kind of remote storage.
func remoteBody(kind string) []any {
	bucket := str("bucket", "The bucket.", required, example(`"acme-inputs"`))
	prefix := str("prefix", "Only what is below this path.", example(`"2026/q3"`))
	region := str("region", "Its region.", example(`"eu-west-1"`))
	endpoint := str("endpoint_url", "Its address.", example(`"http://localhost:9000"`))
	cred := func(name, doc string) *Attr { return str(name, doc, secret, example("secret.storage")) }
	creds := func(parts ...any) *Block {
		parts = append([]any{boolean("ambient", "Use what the host's environment gives.", example("true"))}, parts...)
		b := single("credentials", "Who reaches the storage.", parts...)
		b.Flags |= Host
		return b
	}
	keys := []any{cred("access_key_id", "Key id."), cred("secret_access_key", "Key."), cred("session_token", "Session token.")}
	assume := single("assume_role", "A role to take on, limited to the mount.",
		str("role_arn", "The role.", required, example(`"arn:aws:iam::123456789012:role/data"`)),
		dur("duration", "How long it is valid.", example(`"1h"`)),
		enum("scope", "What it may reach.", []string{"prefix", "bucket"}, def("prefix"), example(`"bucket"`)))
	switch kind {
	case "s3":
		return []any{
			bucket, prefix, region, endpoint, str("provider", "Maker of the server.", def("AWS"), example(`"Minio"`)),
			creds(append(keys, assume)...),
		}
	case "r2":
		return []any{
			bucket, prefix, str("account_id", "The account.", required, example(`"0123abcd"`)),
			str("custom_domain", "Address instead of the account's.", example(`"https://files.example.com"`)),
			creds(keys[:2]...),
		}
	case "gcs":
		return []any{
			bucket, prefix, region, endpoint,
			creds(cred("access_id", "HMAC key id."), cred("secret_access_key", "HMAC key."),
				cred("service_account_file", "File of a service account."), cred("service_account_json", "A service account."),
				cred("access_token", "Access token.")),
		}
	case "azure_blob":
		return []any{
			str("account", "The account.", required, example(`"acme"`)), str("container", "The container.", required, example(`"inputs"`)),
			prefix, str("endpoint", "Its address.", example(`"https://acme.blob.core.windows.net"`)),
			str("identity_client_id", "Managed identity.", example(`"00000000-0000-0000-0000-000000000000"`)),
			creds(cred("account_key", "Key of the account.")),
		}
	case "box":
		return []any{
			str("path", "Path in the account.", example(`"/Team"`)),
			enum("sub_type", "Kind of account.", []string{"user", "enterprise"}, def("user"), example(`"enterprise"`)),
			str("root_folder_id", "Folder to start from.", example(`"0"`)), str("impersonate", "User to act as.", example(`"42"`)),
			str("owned_by", "Only what this user owns.", example(`"a@example.com"`)),
			creds(cred("client_id", "Client id."), cred("client_secret", "Client secret."), cred("access_token", "Access token."),
				cred("token", "Token as JSON."), cred("config_file", "Configuration file."), cred("config_json", "Configuration as JSON.")),
		}
	case "s3_files":
		return []any{
			str("file_system_id", "The file system.", required, example(`"fs-1234"`)), str("subpath", "Path inside it.", example(`"/data"`)),
			str("mount_target_ip", "Address of the mount target.", example(`"10.0.0.5"`)),
			str("access_point", "Access point.", example(`"fsap-1234"`)), region,
			mapping("extra_options", "More mount options.", example(`{ noresvport = "" }`)),
		}
	case mounts.Rclone:
		b := single("credentials", "Options of the backend that are secret, by rclone's names of them.", openBody(Secret, "An option."))
		b.Flags |= Host
		return []any{
			str("backend", "Backend of rclone that berth-mount-rclone has: sftp, webdav, or that of another kind.", required, example(`"sftp"`)),
			str("path", "Path on it.", example(`"data/2026"`)),
			mapping("options", "Options of the backend that are no secret, by rclone's names of them.", host,
				example(`{ host = "files.example.com", user = "data", known_hosts_file = "/home/me/.ssh/known_hosts" }`)),
			b,
		}
	}
	return nil
}

func mountBodies() map[string]*Body {
	out := map[string]*Body{
		"host": body(str("source", "The host path.", required, host, example(`"/srv/data"`))),
		"plugin": body(str("type", "Kind of the mount plugin.", required, example(`"webdav"`)),
			single("config", "Settings of the plugin.", openBody(Secret, "A setting of the plugin."))),
	}
	for _, k := range remoteKinds {
		out[k] = body(remoteBody(k)...)
	}
	return out
}

func storeBodies() map[string]*Body {
	out := map[string]*Body{
		"local": body(str("dir", "Directory of the store.", required, example(`"./.berth/snapshots"`))),
		"noop":  {},
	}
	for _, k := range remoteKinds {
		out[k] = body(remoteBody(k)...)
	}
	return out
}

// sandboxes is the sandbox block.
func sandboxes() *Block {
	ports := cty.DynamicPseudoType
	return block("sandbox", "Where the work happens.", name(), extends,
		attr("driver", "Label of a driver block, else the name of a driver.", Literal, cty.String, []opt{required, example(`"docker"`)}),
		anything("exposed_ports", "Ports to reach from outside: numbers, or objects with port, protocol and public.", typed(ports), example("[8000]")),
		list("trusted_mount_credential_paths", "Mounts whose credentials may be inside the sandbox.", host, example(`["data/eu"]`)),
		single("config", "The driver's own settings.", driverBody("sandbox")),
		single("snapshot", "How the workspace is saved.", kind("kind", "local", "store", "none"),
			enum("persist", "When it is saved.", []string{"on_stop", "every_turn", "interval", "manual", "never"}, def("on_stop"), example(`"every_turn"`)),
			dur("interval", "How often, for persist = \"interval\".", example(`"5m"`)),
			str("restore", "What a fresh sandbox starts from: latest, never, or an id.", def("latest"), example(`"never"`)),
			list("exclude", "Patterns of what is left out.", example(`["node_modules/"]`)),
			enum("native", "Use of the vendor's own snapshots.", []string{"auto", "never", "always"}, def("auto"), example(`"never"`)),
			byLabel(map[string]*Body{
				"local": body(str("dir", "Directory of the snapshots.", defText(".berth/snapshots"), example(`"./.berth/snapshots"`))),
				"store": body(ref("store", "snapshot_store", "The store.", required, example("snapshot_store.s3.archive"))),
				"none":  {},
			})),
		single("session", "Where the sandbox comes from and what becomes of it.",
			enum("source", "Make one, find one again, or either.", []string{"create", "resume", "resume_or_create", "attach"}, def("create"), example(`"resume_or_create"`)),
			str("key", "Name by which it is found again.", runtime, example(`"dev-${var.repo}"`)),
			str("state_file", "File with the session's state.", host, example(`"./session.json"`)),
			enum("on_gone", "What to do when the sandbox no longer exists.", []string{"fail", "restore_snapshot", "create"}, def("fail"), example(`"restore_snapshot"`)),
			enum("on_drift", "What to do when a sandbox that is found again was made with another configuration.", []string{"reuse", "recreate", "fail"},
				defText("fail for what a sandbox cannot be given anew, else a warning"), example(`"recreate"`)),
			enum("at_end", "What to do at the end of a run.", []string{"destroy", "stop", "pause", "keep"}, def("stop"), example(`"destroy"`)),
			dur("orphan_ttl", "How long processes live when nobody is connected; 0 = not at all.", defText("2m"), example(`"10m"`))),
		single("lifetime", "How long the sandbox lives.",
			dur("max", "Longest life.", defText("the vendor's"), example(`"4h"`)),
			boolean("extend", "Extend it where the vendor can.", defText("true"), example("false")),
			dur("snapshot_before", "Save this long before the end.", defText("2m"), example(`"5m"`)),
			dur("idle", "End it when no berth has used it for this long.", example(`"30m"`))),
		single("limits", "Bounds; 0 = none.",
			num("manifest_entries", "Entries made at the same time.", atLeast(0), defText("4"), example("8")),
			num("local_dir_files", "Files copied at the same time.", atLeast(0), defText("4"), example("8")),
			num("processes", "Commands at the same time.", atLeast(0), defText("64"), example("16")),
			size("output_bytes", "Output kept of head and of tail.", defText("64KiB"), example(`"256KiB"`)),
			size("memory_bytes", "Memory of the sandbox.", defText("the driver's"), example(`"4GiB"`)),
			num("cpus", "Processors of the sandbox.", fraction, atLeast(0), defText("the driver's"), example("2"))),
		single("archive_limits", "Bounds of imported archives.",
			size("max_input_bytes", "Size of the archive.", defText("1GiB"), example(`"2GiB"`)),
			size("max_extracted_bytes", "Size of what is in it.", defText("4GiB"), example(`"8GiB"`)),
			num("max_members", "Number of members.", atLeast(0), defText("100000"), example("500000"))),
		single("network", "What the sandbox can reach.",
			enum("mode", "What is allowed.", []string{"default", "none", "allow_list"}, defText("the driver's"), example(`"none"`)),
			list("allow", "Hosts of the allow list.", example(`["pypi.org"]`))),
		single("timeouts", "Bounds of the sandbox's operations; 0 = none.",
			dur("create", "Making it.", defText("5m"), example(`"10m"`)),
			dur("resume", "Finding it again.", defText("2m"), example(`"5m"`)),
			dur("exec", "One command.", defText("0"), example(`"30m"`)),
			dur("stop", "Stopping it.", defText("1m"), example(`"2m"`))))
}
