// Prints what a registry or an installer is told of the program, as JSON:
//
//   node packaging/manifests.js npm VERSION            package.json of the npm package
//   node packaging/manifests.js npm VERSION OS ARCH    package.json of the one with the program for a system
//   node packaging/manifests.js bundle VERSION OS      manifest.json of an MCPB bundle
//   node packaging/manifests.js server VERSION         server.json for the MCP registry; reads checksums.txt on stdin
//   node packaging/manifests.js agent VERSION          agent.json for the ACP registry
//
// OS and ARCH are Go's words. packaging/release calls it; what all of them say of us stands here once.
"use strict";
const fs = require("node:fs");

const name = "atm-agent-mcp";
const registered = "io.github.randlee/" + name; // in the MCP registry
const owner = "randlee";
const repository = `https://github.com/${owner}/${name}`;
const license = "MIT";
// The MCP registry allows 100 characters.
const description = "Codex agents as named, persistent teammates of any MCP client";
const systems = ["linux", "darwin", "windows"];
const processors = ["amd64", "arm64"];
const targets = systems.flatMap((os) => processors.map((arch) => [os, arch]));

const nodeSystem = (os) => (os === "windows" ? "win32" : os);
const nodeProcessor = (arch) => (arch === "amd64" ? "x64" : arch);
const npmName = (os, arch) => `${name}-${nodeSystem(os)}-${nodeProcessor(arch)}`;
const program = (os) => (os === "windows" ? name + ".exe" : name);
const asset = (version, os, arch, ending) =>
  `${repository}/releases/download/v${version}/${name}-${version}-${os}-${arch}.${ending}`;

function npm(version, os, arch) {
  const common = { version, description, license, author: owner, homepage: repository,
    repository: { type: "git", url: `git+${repository}.git` } };
  if (os) {
    return { name: npmName(os, arch), ...common, description: `The program of ${name} for ${os} on ${arch}`,
      os: [nodeSystem(os)], cpu: [nodeProcessor(arch)], files: ["bin"],
      preferUnplugged: true }; // a program can't be started out of Yarn's zip files
  }
  return { name, ...common, keywords: ["codex", "mcp", "mcp-server", "acp", "agents", "claude-code"],
    mcpName: registered, // proves to the MCP registry that both are ours
    bin: { [name]: `bin/${name}.js` }, files: ["bin"], engines: { node: ">=18" },
    optionalDependencies: Object.fromEntries(targets.map(([os, arch]) => [npmName(os, arch), version])) };
}

function bundle(version, os) {
  const entry = "server/" + program(os);
  return { manifest_version: "0.3", name, display_name: "ATM Codex agents", version, description, license,
    long_description: `${description}. Codex must be installed and logged in (\`npm install -g @openai/codex\`, ` +
      "`codex login`). An agent works in the directory that its prompt is sent with, as `cwd`.",
    author: { name: owner }, homepage: repository, documentation: repository + "#readme",
    support: repository + "/issues", repository: { type: "git", url: repository }, icon: "icon.png",
    server: { type: "binary", entry_point: entry, mcp_config: { command: "${__dirname}/" + entry, args: ["serve"],
      env: { ATM_AGENT_MCP_CODEX_BIN: "${user_config.codex}", ATM_TEAM: "${user_config.team}" } } },
    // An empty variable says nothing to the program. Without a default it would get the words in braces.
    user_config: {
      codex: { type: "string", title: "Codex program", default: "",
        description: "Its whole path, where `codex` alone is not found" },
      team: { type: "string", title: "Team", default: "", description: "The team of new agents, if it has a name" },
    },
    tools_generated: true, compatibility: { platforms: [nodeSystem(os)] } };
}

function server(version) {
  const sums = new Map(fs.readFileSync(0, "utf8").trim().split("\n").map((line) => line.split(/\s+/).reverse()));
  const sum = (file) => {
    if (!/^[0-9a-f]{64}$/.test(sums.get(file))) throw new Error("checksums.txt has no sum of " + file);
    return sums.get(file);
  };
  const transport = { type: "stdio" };
  const bundles = targets.map(([os, arch]) => {
    const identifier = asset(version, os, arch, "mcpb");
    return { registryType: "mcpb", identifier, fileSha256: sum(identifier.split("/").pop()), transport };
  });
  return { $schema: "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    name: registered, title: "ATM Codex agents", description, version, websiteUrl: repository,
    repository: { url: repository, source: "github" },
    packages: [{ registryType: "npm", identifier: name, version, transport, runtimeHint: "npx",
      packageArguments: [{ type: "positional", value: "serve" }] }, ...bundles] };
}

function agent(version) {
  const args = ["acp"];
  const binary = Object.fromEntries(targets.map(([os, arch]) => [
    `${os}-${arch === "amd64" ? "x86_64" : "aarch64"}`,
    { archive: asset(version, os, arch, os === "windows" ? "zip" : "tar.gz"), cmd: "./" + program(os), args },
  ]));
  return { id: name, name: "ATM Codex agents", version, description: "Codex as an agent of any ACP editor", repository,
    authors: [owner], license, distribution: { binary, npx: { package: `${name}@${version}`, args } } };
}

const [kind, version, ...target] = process.argv.slice(2);
const made = { npm, bundle, server, agent }[kind];
if (!made || !version) {
  console.error("usage: node packaging/manifests.js npm|bundle|server|agent VERSION [OS] [ARCH]");
  process.exit(2);
}
console.log(JSON.stringify(made(version, ...target), null, 2));
