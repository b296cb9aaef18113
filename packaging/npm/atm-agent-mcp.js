#!/usr/bin/env node
// Starts the program, which is in one of the optional dependencies of this package: npm installs the one for the
// system at hand. stdin and stdout are the program's own; this process only passes signals on and waits.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { isatty } = require("node:tty");
const { version, optionalDependencies } = require("../package.json");

const windows = process.platform === "win32";
const platformPackage = `atm-agent-mcp-${process.platform}-${process.arch}`;

function fail(what, hint) {
  console.error(`atm-agent-mcp: ${what}\nhint: ${hint}`);
  process.exit(1);
}

function findProgram() {
  try {
    return require.resolve(`${platformPackage}/bin/atm-agent-mcp${windows ? ".exe" : ""}`);
  } catch {
    if (!(platformPackage in optionalDependencies)) {
      fail(`there is no program for ${process.platform} on ${process.arch} in npm`,
        "build it with Go: go install github.com/randlee/atm-agent-mcp@latest");
    }
    fail(`the package ${platformPackage}, which has the program for this system, is not installed`,
      "install again on this system, without --omit=optional and not from a copied node_modules, or add it: " +
        `npm install ${platformPackage}@${version}`);
  }
}

const program = findProgram();
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (err) => fail(`${program} can't be started: ${err.message}`, "install the package again"));
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    // A terminal's ^C, and everything on Windows, reaches the program by itself. It takes a second signal for
    // impatience.
    if (!windows && !(signal === "SIGINT" && isatty(0))) child.kill(signal);
  });
}
