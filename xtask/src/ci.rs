//! The checks a change has to pass, in the order of how soon they fail.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// One check: a name for the summary, the arguments of `cargo`, and extra environment.
struct Step {
    name: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

const fn step(name: &'static str, args: &'static [&'static str]) -> Step {
    Step { name, args, env: &[] }
}

const STEPS: &[Step] = &[
    step("format", &["fmt", "--all", "--check"]),
    step("tidy", &["xtask", "tidy"]),
    step("clippy", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
    step("test", &["test", "--workspace", "--locked"]),
    step("demo", &["run", "--release", "--locked", "--", "demo", "--once"]),
    Step {
        name: "docs",
        args: &["doc", "--workspace", "--no-deps", "--locked"],
        env: &[("RUSTDOCFLAGS", "-D warnings")],
    },
    // The advisory database lives on the network, which a build machine need not have.
    step("deny", &["deny", "--locked", "check", "bans", "licenses", "sources"]),
];

/// Runs every step, also after a failure, and sums up; an error names the steps that failed.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    ensure_deny(root)?;
    let results: Vec<_> = STEPS.iter().map(|step| (step.name, timed(root, step))).collect();
    println!("\n{}", summary(&results));
    let failed: Vec<_> = results.iter().filter(|(_, (ok, _))| !ok).map(|(name, _)| *name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("error: failed: {}", failed.join(", "))) }
}

fn timed(root: &Path, step: &Step) -> (bool, Duration) {
    println!("\n== {}: cargo {}", step.name, step.args.join(" "));
    let started = Instant::now();
    let ok = cargo(root, step.args, step.env);
    (ok, started.elapsed())
}

fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> bool {
    let status = Command::new("cargo").args(args).envs(env.iter().copied()).current_dir(root).status();
    matches!(status, Ok(status) if status.success())
}

fn ensure_deny(root: &Path) -> Result<(), String> {
    let probe = Command::new("cargo").args(["deny", "--version"]).current_dir(root).output();
    if matches!(probe, Ok(output) if output.status.success()) {
        return Ok(());
    }
    println!("== installing cargo-deny");
    if cargo(root, &["install", "cargo-deny", "--locked"], &[]) {
        return Ok(());
    }
    Err("error: cannot install cargo-deny\n  hint: run `cargo install cargo-deny --locked` by hand"
        .to_owned())
}

fn summary(results: &[(&str, (bool, Duration))]) -> String {
    let line = |(name, (ok, took)): &(&str, (bool, Duration))| {
        format!("{:<8} {:<6} {:>7.1} s\n", name, if *ok { "ok" } else { "FAILED" }, took.as_secs_f64())
    };
    let total: Duration = results.iter().map(|(_, (_, took))| *took).sum();
    let body: String = results.iter().map(line).collect();
    format!("{body}{:<8} {:<6} {:>7.1} s", "total", "", total.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_shows_each_step_with_its_time_and_the_total() {
        let results =
            [("format", (true, Duration::from_millis(1500))), ("test", (false, Duration::from_secs(60)))];
        let expected = "format   ok         1.5 s\ntest     FAILED    60.0 s\ntotal              61.5 s";
        assert_eq!(summary(&results), expected);
    }
}
