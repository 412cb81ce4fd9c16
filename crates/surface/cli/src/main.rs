//! The `tidegate` command.

mod args;
mod config;
mod demo;
mod failure;
mod inspect;
mod log;
mod pipeline;
mod playground;
mod run;
mod search_system;
mod signal;
mod tail;
mod units;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{CliError, Failure};

fn main() -> ExitCode {
    let outcome = start(Cli::parse());
    outcome.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        ExitCode::from(failure.exit_code())
    })
}

fn start(cli: Cli) -> Result<ExitCode, Failure> {
    log::start(&cli.log, cli.log_json)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(CliError::Start)?.block_on(command(cli.command))
}

async fn command(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Run(args) => run::run(args).await,
        Command::Fabric(args) => search_system::run(args).await,
        Command::Playground(args) => playground::run(args).await,
        Command::Inspect(args) => inspect::run(&args),
        Command::Tail(args) => tail::run(args).await,
        Command::Verify(args) => verify::run(args).await,
    }
}
