//! `tidegate playground`: an upstream to point clients at.

use std::process::ExitCode;

use tidegate_playground::{Playground, PlaygroundOptions};
use tidegate_testkit::{History, data};

use crate::args::PlaygroundArgs;
use crate::failure::Failure;
use crate::signal::interrupted;

/// Runs the command until it is interrupted.
pub(crate) async fn run(args: PlaygroundArgs) -> Result<ExitCode, Failure> {
    let history = match &args.history {
        Some(path) => History::open(path)?,
        None => data::demo_history()?,
    };
    let name = history.header.name.clone();
    let options = PlaygroundOptions {
        history: Some(history),
        host: args.pd.ip(),
        pd_port: args.pd.port(),
        ..PlaygroundOptions::default()
    };
    let interrupted = interrupted()?;
    let playground = Playground::start(options).await?;
    println!("history {name} is loaded; PD listens on {} (Ctrl-C ends)", playground.pd_endpoint());
    interrupted.await;
    playground.stop().await;
    Ok(ExitCode::SUCCESS)
}
