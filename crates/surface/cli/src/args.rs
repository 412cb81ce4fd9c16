//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Keeps a search system in step with a TiDB database, and tells how fresh it is.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true, after_help = TOP_EXAMPLE)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// What to log to stderr, such as `info` or `warn,tidegate_puller=debug`.
    #[arg(long, global = true, value_name = "FILTER", default_value = "warn")]
    pub(crate) log: String,

    /// Log as JSON lines.
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
}

const TOP_EXAMPLE: &str = "\
Example:
  tidegate demo             start the whole pipeline on recorded data, with a page to search on
  tidegate demo --once      the same, ending after three searches and a full comparison";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole pipeline on recorded data, with a page to search on.
    #[command(after_help = DEMO_EXAMPLE)]
    Demo(DemoArgs),
    /// Stream from a PD to an ingest gateway, as a configuration file says.
    #[command(after_help = RUN_EXAMPLE)]
    Run(RunArgs),
    /// Start the search system alone: ingest gateway, catalogue, queries and the page.
    #[command(after_help = FABRIC_EXAMPLE)]
    Fabric(FabricArgs),
    /// Start an upstream that speaks the protocols of PD and TiKV, loaded with a recorded history.
    #[command(after_help = PLAYGROUND_EXAMPLE)]
    Playground(PlaygroundArgs),
    /// Print tables, versions and DDL of a recorded history.
    #[command(after_help = INSPECT_EXAMPLE)]
    Inspect(InspectArgs),
    /// Print the changes of some tables as they come, one line each.
    #[command(after_help = TAIL_EXAMPLE)]
    Tail(TailArgs),
    /// Stream a recorded history through the real path and compare every table with what TiDB answered.
    #[command(after_help = VERIFY_EXAMPLE)]
    Verify(VerifyArgs),
}

const DEMO_EXAMPLE: &str = "\
Example:
  tidegate demo --data-dir ./tidegate-data
      keeps everything in a folder: kill it, start it again, and it resumes from its checkpoint";

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// End after the example searches; exit code 0 only if the index holds what the upstream holds.
    #[arg(long)]
    pub(crate) once: bool,

    /// Keep state in this folder, so that the next start resumes. Without it everything is in memory.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Where the page is served.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8471")]
    pub(crate) listen: SocketAddr,

    /// Replay the recorded history at this many times its own speed instead of having it all there at the
    /// start. Time starts over with it, so there is nothing to resume.
    #[arg(long, value_name = "FACTOR", conflicts_with = "data_dir")]
    pub(crate) speed: Option<f64>,
}

const RUN_EXAMPLE: &str = "\
Example:
  tidegate run -c tidegate.toml

  # tidegate.toml
  data_dir = \"./tidegate-data\"
  [upstream]
  pd = [\"127.0.0.1:2379\"]
  [gateway]
  endpoint = \"http://127.0.0.1:7401\"
  [tables]
  include = [\"shop.*\"]";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration file (TOML).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// Check the file and end.
    #[arg(long)]
    pub(crate) check: bool,
}

const FABRIC_EXAMPLE: &str = "\
Example:
  tidegate fabric --data-dir ./search
      takes changes on 127.0.0.1:7401 and serves the page on http://127.0.0.1:8471";

#[derive(Debug, Args)]
pub(crate) struct FabricArgs {
    /// Where the ingest gateway, the catalogue and the query service listen (gRPC).
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7401")]
    pub(crate) gateway: SocketAddr,

    /// Where the page is served.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8471")]
    pub(crate) listen: SocketAddr,

    /// Keep everything in this folder. Without it everything is in memory.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

const PLAYGROUND_EXAMPLE: &str = "\
Example:
  tidegate playground --pd 127.0.0.1:2379
      serves the demo's history; any TiKV client can connect to that address";

#[derive(Debug, Args)]
pub(crate) struct PlaygroundArgs {
    /// A recorded history (NAME.history.jsonl.zst); the demo's own if left out.
    #[arg(value_name = "HISTORY")]
    pub(crate) history: Option<PathBuf>,

    /// Where PD listens; stores take free ports.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) pd: SocketAddr,
}

const INSPECT_EXAMPLE: &str = "\
Example:
  tidegate inspect demo.history.jsonl.zst";

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A recorded history (NAME.history.jsonl.zst).
    #[arg(value_name = "HISTORY")]
    pub(crate) history: PathBuf,
}

const TAIL_EXAMPLE: &str = "\
Example:
  tidegate tail --pd 127.0.0.1:2379 --json 'shop.*' '!shop.tmp_*'";

#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// `db.table` patterns; `*` any text, `?` one character, a leading `!` excludes.
    #[arg(value_name = "TABLE", default_value = "*.*")]
    pub(crate) tables: Vec<String>,

    /// Address of PD.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2379")]
    pub(crate) pd: String,

    /// Print changes committed after this timestamp; now if left out.
    #[arg(long, value_name = "TS")]
    pub(crate) from: Option<u64>,

    /// End after everything up to this timestamp is printed.
    #[arg(long, value_name = "TS")]
    pub(crate) until: Option<u64>,

    /// Print JSON lines.
    #[arg(long)]
    pub(crate) json: bool,
}

const VERIFY_EXAMPLE: &str = "\
Example:
  tidegate verify bank.history.jsonl.zst --expected bank.expected.json.zst";

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A recorded history (NAME.history.jsonl.zst).
    #[arg(value_name = "HISTORY")]
    pub(crate) history: PathBuf,

    /// What TiDB answered (NAME.expected.json.zst).
    #[arg(long, value_name = "FILE")]
    pub(crate) expected: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example_in_its_help() {
        let mut commands = vec![Cli::command()];
        commands.extend(Cli::command().get_subcommands().cloned());
        for mut command in commands {
            let help = command.render_help().to_string();
            assert!(help.contains("Example:"), "{} has none", command.get_name());
        }
    }
}
