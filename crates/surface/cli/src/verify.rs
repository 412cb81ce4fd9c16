//! `tidegate verify`: a recorded history through the real path, compared with what TiDB answered.

mod compare;
mod model;
mod witness;

use std::process::ExitCode;
use std::time::Duration;

use tidegate_mini::{Runtime, StartConfig, TableFilter, TableSet, Upstream, UpstreamOptions};
use tidegate_playground::{Playground, PlaygroundOptions};
use tidegate_testkit::{Expected, History};
use tokio::time::sleep;

use crate::args::VerifyArgs;
use crate::failure::{CliError, Failure};
use witness::{Verdict, Witness};

/// No recorded history takes longer, even on a slow machine; a stream that stands still must not hang a
/// build.
const DEADLINE: Duration = Duration::from_secs(600);

/// Runs the command.
pub(crate) async fn run(args: VerifyArgs) -> Result<ExitCode, Failure> {
    let history = History::open(&args.history)?;
    let expected = Expected::open(&args.expected)?;
    let verdict = stream(history, expected).await?;
    for difference in &verdict.differences {
        println!("{difference}");
    }
    println!("{}", summary(&verdict));
    Ok(if verdict.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The whole path: playground, gRPC, puller, schema store, decoder, Mini-CDC, model.
async fn stream(history: History, expected: Expected) -> Result<Verdict, Failure> {
    let start_ts = history.header.base_ts.as_start();
    let options = PlaygroundOptions { history: Some(history), ..PlaygroundOptions::default() };
    let playground = Playground::start(options).await?;
    let upstream = Upstream::connect(UpstreamOptions::new([playground.pd_endpoint()])).await?;
    let (witness, verdict) = Witness::new(expected);
    let config = StartConfig::new(start_ts, TableSet::Follow(TableFilter::all()));
    let mut runtime = Runtime::start(&upstream, config, witness).await?;
    let verdict = tokio::select! {
        verdict = verdict => verdict.map_err(|_| CliError::Ended { part: "the stream" }),
        report = runtime.wait() => return Err(ended(report)),
        () = sleep(DEADLINE) => {
            Err(CliError::TooSlow { what: "the last snapshot", seconds: DEADLINE.as_secs() })
        }
    };
    runtime.stop();
    runtime.wait().await;
    upstream.close().await;
    playground.stop().await;
    Ok(verdict?)
}

fn ended(report: tidegate_mini::Report) -> Failure {
    match report.error {
        Some(error) => error.into(),
        None => CliError::Ended { part: "the stream" }.into(),
    }
}

fn summary(verdict: &Verdict) -> String {
    let counts =
        format!("{} tables, {} snapshots, {} rows", verdict.tables.len(), verdict.snapshots, verdict.rows);
    match verdict.differences.len() {
        0 => format!("equal: {counts}"),
        n => format!("different: {n} differences in {counts}"),
    }
}
