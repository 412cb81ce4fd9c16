//! `tidegate inspect`: what a recorded history holds.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_codec::event::DdlEvent;
use tidegate_codec::key::{DDL_JOB_TABLE, parse_index_key, parse_record_key};
use tidegate_codec::time::Time;
use tidegate_core::{Op, RawChange, RegionId, TableId, Ts};
use tidegate_schema::{PhysicalTable, SchemaError, SchemaOptions, SchemaStore};
use tidegate_testkit::{History, Version};

use crate::args::InspectArgs;
use crate::failure::Failure;

/// DDL events taken from the store at once.
const DDL_BATCH: NonZeroUsize = NonZeroUsize::MAX;
/// Longer statements are cut; the line is for recognising them.
const QUERY_CHARS_MAX: usize = 100;

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<ExitCode, Failure> {
    let history = History::open(&args.history)?;
    let schema = replay(&history)?;
    print_header(&history);
    print_tables(&history, &schema)?;
    print_ddl(&schema, history.header.base_ts)?;
    Ok(ExitCode::SUCCESS)
}

/// A schema store that has seen the whole history.
fn replay(history: &History) -> Result<SchemaStore, SchemaError> {
    let store = SchemaStore::open(SchemaOptions::default())?;
    let base = history.base.iter().map(|version| (version.key.clone(), version.value.clone()));
    store.initialise(history.header.base_ts, base)?;
    // The change feed of the job table has its rows only, not its indexes.
    let is_job = |key: &[u8]| parse_record_key(key).is_ok_and(|key| key.table_id == DDL_JOB_TABLE);
    let mut newest = HashMap::new();
    let jobs = history.log.iter().filter(|version| is_job(&version.key));
    let changes: Vec<RawChange> = jobs.map(|version| change(version, &mut newest)).collect();
    store.apply(&changes)?;
    store.advance(history.header.end_ts.as_resolved())?;
    Ok(store)
}

fn change(version: &Version, newest: &mut HashMap<Bytes, Bytes>) -> RawChange {
    let old_value = match version.op {
        Op::Put => newest.insert(version.key.clone(), version.value.clone()),
        Op::Delete => newest.remove(&version.key),
    };
    RawChange {
        op: version.op,
        key: version.key.clone(),
        value: version.value.clone(),
        old_value: old_value.unwrap_or_default(),
        start_ts: version.start_ts,
        commit_ts: version.commit_ts,
        region_id: RegionId::default(),
    }
}

fn print_header(history: &History) {
    let header = &history.header;
    let puts = history.log.iter().filter(|version| version.op == Op::Put).count();
    println!("history   {}, cluster {}", header.name, header.cluster_id);
    println!("base_ts   {}  {}", header.base_ts, time(header.base_ts));
    println!("end_ts    {}  {}", header.end_ts, time(header.end_ts));
    println!("base      {} metadata keys", history.base.len());
    println!("log       {} versions: {puts} puts, {} deletes", history.log.len(), history.log.len() - puts);
}

/// Versions and rows of one physical table.
#[derive(Default)]
struct Counts {
    versions: usize,
    rows: usize,
    index_versions: usize,
}

fn print_tables(history: &History, schema: &SchemaStore) -> Result<(), SchemaError> {
    let mut counts = count(history);
    let mut tables: BTreeMap<String, (Vec<PhysicalTable>, Counts)> = BTreeMap::new();
    for physical in schema.physical_tables_at(history.header.end_ts)? {
        let (parts, sum) = tables.entry(format!("{}.{}", physical.schema, physical.table)).or_default();
        sum.add(&counts.remove(&physical.id).unwrap_or_default());
        parts.push(physical);
    }
    println!(
        "\n{:<32} {:>8} {:>10} {:>9} {:>9} {:>9}",
        "table", "columns", "partitions", "rows", "versions", "index"
    );
    for (name, (parts, sum)) in &tables {
        let columns = columns(schema, parts, history.header.end_ts)?;
        let partitions = if parts.len() > 1 { parts.len().to_string() } else { "–".to_owned() };
        let Counts { rows, versions, index_versions } = sum;
        println!("{name:<32} {columns:>8} {partitions:>10} {rows:>9} {versions:>9} {index_versions:>9}");
    }
    let mut rest = Counts::default();
    counts.values().for_each(|other| rest.add(other));
    if rest.versions > 0 {
        println!(
            "{:<32} {:>8} {:>10} {:>9} {:>9} {:>9}",
            "(dropped and of the system)", "", "", "", rest.versions, rest.index_versions
        );
    }
    Ok(())
}

fn columns(schema: &SchemaStore, parts: &[PhysicalTable], ts: Ts) -> Result<usize, SchemaError> {
    let Some(part) = parts.first() else { return Ok(0) };
    Ok(schema.table_at(part.id, ts)?.version.info().public_columns().count())
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.versions += other.versions;
        self.rows += other.rows;
        self.index_versions += other.index_versions;
    }
}

fn count(history: &History) -> HashMap<TableId, Counts> {
    let mut counts: HashMap<TableId, Counts> = HashMap::new();
    let mut present: HashMap<&Bytes, Op> = HashMap::new();
    for version in &history.log {
        if let Ok(key) = parse_record_key(&version.key) {
            counts.entry(key.table_id).or_default().versions += 1;
            present.insert(&version.key, version.op);
        } else if let Ok(key) = parse_index_key(&version.key) {
            counts.entry(key.table_id).or_default().index_versions += 1;
        }
    }
    for (key, _) in present.into_iter().filter(|(_, op)| *op == Op::Put) {
        if let Ok(key) = parse_record_key(key) {
            counts.entry(key.table_id).or_default().rows += 1;
        }
    }
    counts
}

fn print_ddl(schema: &SchemaStore, base_ts: Ts) -> Result<(), SchemaError> {
    let events = schema.ddls(base_ts, DDL_BATCH)?.events;
    println!("\n{} ddl events", events.len());
    events.iter().for_each(|event| println!("{}", ddl_line(event)));
    Ok(())
}

fn ddl_line(event: &Arc<DdlEvent>) -> String {
    let one_line = event.query.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = one_line.chars().take(QUERY_CHARS_MAX).collect();
    let dots = if cut.len() < one_line.len() { "…" } else { "" };
    format!(
        "{}  {}  job {:<5} {:?}: {cut}{dots}",
        event.finished_ts,
        time(event.finished_ts.ts()),
        event.job_id,
        event.action
    )
}

/// Date and time of a timestamp, UTC.
fn time(ts: Ts) -> String {
    let micros = i64::try_from(ts.physical_ms()).ok().and_then(|ms| ms.checked_mul(1000));
    let Some(time) = micros.and_then(|micros| Time::from_unix_micros(micros, 3)) else {
        return String::new();
    };
    let mut text = Vec::new();
    time.write_datetime(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
