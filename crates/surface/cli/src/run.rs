//! `tidegate run`: from a PD to an ingest gateway, as a configuration file says.

use std::process::ExitCode;
use std::time::Duration;

use tidegate_adapter::Adapter;
use tokio::time::interval;

use crate::args::RunArgs;
use crate::config::Config;
use crate::failure::Failure;
use crate::signal::interrupted;

/// How often the position is logged.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// Runs the command until it is interrupted or something fails.
pub(crate) async fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    let options = Config::load(&args.config)?;
    if args.check {
        println!("{} is sound", args.config.display());
        return Ok(ExitCode::SUCCESS);
    }
    let mut adapter = Adapter::start(options).await?;
    let mut reports = interval(REPORT_PERIOD);
    let interrupted = interrupted()?;
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            _ = reports.tick() => tracing::info!(status = ?adapter.status(), "position"),
            () = &mut interrupted => break,
            outcome = adapter.wait() => return outcome.map(|_| ExitCode::SUCCESS).map_err(Failure::from),
        }
    }
    adapter.stop();
    adapter.wait().await?;
    Ok(ExitCode::SUCCESS)
}
