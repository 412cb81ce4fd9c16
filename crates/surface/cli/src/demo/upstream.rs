//! What the upstream holds, read over gRPC at one timestamp and decoded, apart from everything that feeds
//! search.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_codec::key::{parse_record_key, record_range};
use tidegate_codec::meta::{DbInfo, TableInfo};
use tidegate_codec::meta_key::{self, MetaEntry};
use tidegate_codec::row::TableLayout;
use tidegate_core::{TableId, Ts};
use tidegate_puller::kv::{KvPair, SnapshotReader};

use super::document::{Fields, of_row};
use crate::failure::{CliError, Failure};

/// A user table as of a timestamp.
#[derive(Clone)]
pub(crate) struct Table {
    /// `db.table`.
    pub(crate) name: String,
    pub(crate) layout: Arc<TableLayout>,
}

/// The tables of database `schema` as of `ts`.
pub(crate) async fn tables(reader: &SnapshotReader, schema: &str, ts: Ts) -> Result<Vec<Table>, Failure> {
    let databases = scan_prefix(reader, meta_key::databases_prefix(), ts).await?;
    let infos = databases.iter().filter_map(|pair| DbInfo::parse(&pair.value).ok());
    let Some(database) = infos.into_iter().find(|info| info.name.is(schema)) else { return Ok(Vec::new()) };
    let entries = scan_prefix(reader, meta_key::tables_prefix(database.id), ts).await?;
    let is_table = |pair: &&KvPair| matches!(meta_key::classify(&pair.key), Ok(MetaEntry::Table { .. }));
    entries.iter().filter(is_table).map(|pair| table(schema, pair)).collect()
}

fn table(schema: &str, pair: &KvPair) -> Result<Table, Failure> {
    let info = TableInfo::parse(&pair.value).map_err(unexpected)?;
    let name = format!("{schema}.{}", info.name);
    Ok(Table { name, layout: Arc::new(TableLayout::new(Arc::new(info))) })
}

/// All rows of `table` as of `ts`, as the documents they must be, by document id.
pub(crate) async fn documents(
    reader: &SnapshotReader,
    table: &Table,
    ts: Ts,
) -> Result<BTreeMap<u64, Fields>, Failure> {
    let mut documents = BTreeMap::new();
    for physical in table.layout.table().physical_ids() {
        for pair in rows(reader, physical, ts).await? {
            let key = parse_record_key(&pair.key).map_err(unexpected)?;
            let row = table.layout.row(key.handle, &pair.value).map_err(unexpected)?;
            documents.insert(document_id(&row)?, of_row(&row)?);
        }
    }
    Ok(documents)
}

/// Raw rows of one physical table as of `ts`.
pub(crate) async fn rows(reader: &SnapshotReader, table: TableId, ts: Ts) -> Result<Vec<KvPair>, Failure> {
    let (start, end) = record_range(None, table);
    Ok(reader.scan(&start, &end, ts).await?)
}

/// The demo's tables all have an unsigned integer key.
fn document_id(row: &tidegate_codec::row::RowView<'_>) -> Result<u64, Failure> {
    match row.table().pk_handle_column().map(|column| row.column(column)) {
        Some(Ok(tidegate_codec::value::Value::UInt(id))) => Ok(id),
        _ => Err(CliError::Unexpected { what: "a row has no unsigned integer key".to_owned() }.into()),
    }
}

async fn scan_prefix(reader: &SnapshotReader, prefix: Vec<u8>, ts: Ts) -> Result<Vec<KvPair>, Failure> {
    let mut end = prefix.clone();
    // Prefixes of metadata end in a kind or a terminator, never in 0xff.
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    Ok(reader.scan(&prefix, &end, ts).await?)
}

fn unexpected(error: impl std::error::Error) -> CliError {
    CliError::Unexpected { what: error.to_string() }
}
