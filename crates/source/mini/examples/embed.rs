//! Embeds the runtime: prints rows, DDL and checkpoints of every table of a cluster.
//!
//! `cargo run -p tidegate-mini --example embed -- 127.0.0.1:2379 'shop.*'`

use tidegate_codec::event::{DdlEvent, RowChanged};
use tidegate_codec::text::write_text;
use tidegate_mini::{
    Admission, Callback, CallbackError, Checkpoint, Runtime, StartConfig, TableFilter, TableSet, Upstream,
    UpstreamOptions,
};

struct Print;

impl Callback for Print {
    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        print!("{} {:?} {}", row.commit_ts(), row.kind, row.table().name);
        for (column, value) in row.current().into_iter().flat_map(|view| view.columns()) {
            let mut text = Vec::new();
            write_text(&value?, &mut text)?;
            print!(" {}={}", column.name, String::from_utf8_lossy(&text));
        }
        println!();
        Ok(Admission::Taken)
    }

    fn on_ddl(&mut self, ddl: &DdlEvent) -> Result<(), CallbackError> {
        println!("{} ddl: {}", ddl.finished_ts, ddl.query);
        Ok(())
    }

    fn on_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), CallbackError> {
        println!("{} checkpoint of {} tables", checkpoint.global(), checkpoint.tables().len());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let pd = args.next().ok_or("usage: embed PD_ADDRESS [PATTERN]...")?;
    let patterns: Vec<String> = args.collect();
    let filter = if patterns.is_empty() { TableFilter::all() } else { TableFilter::parse(&patterns)? };

    let upstream = Upstream::connect(UpstreamOptions::new([pd])).await?;
    let now = upstream.pd().tso().await?;
    let config = StartConfig::new(now.as_start(), TableSet::Follow(filter));
    let mut runtime = Runtime::start(&upstream, config, Print).await?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => runtime.stop(),
        report = runtime.wait() => return Err(report.error.map_or("stopped".into(), Into::into)),
    }
    println!("stopped at {}", runtime.wait().await.position);
    Ok(())
}
