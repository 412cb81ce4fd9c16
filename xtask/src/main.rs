//! The project's toolbox: `cargo xtask tidy` checks the rules that compilers do not know, `cargo xtask ci`
//! runs everything that has to pass before a change lands, `cargo xtask fuzz` looks for trouble for longer.

mod ci;
mod fuzz;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy   check the project's own rules: lengths, names, layers, error pages, stray paths
  ci     run formatting, clippy, tidy, tests, the demo, docs and cargo-deny, and sum up
  fuzz   [SECONDS [SEED]]: run each fuzz target for that long, 60 seconds unless told
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(&root()),
        ["ci"] => ci::run(&root()),
        ["fuzz"] => fuzz::run(&root(), "60", None),
        ["fuzz", seconds] => fuzz::run(&root(), seconds, None),
        ["fuzz", seconds, seed] => fuzz::run(&root(), seconds, Some(seed)),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace root: the folder above this crate's own.
fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}
