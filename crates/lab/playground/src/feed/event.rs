//! Rows as the wire's events, within its size limits (`reference/cdc-protocol.md` §5).

use tidegate_core::{Op, RegionId};
use tidegate_proto::cdcpb::event::{Entries, Event as Kind, LogType, Row, row::OpType};
use tidegate_proto::cdcpb::{Error, Event};

use super::RequestId;
use super::limits::EVENT_BYTES;
use crate::engine::{ChangeRow, RowKind};

/// What an event counts towards the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventSize {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// One row as the wire has it.
pub(crate) fn row(row: ChangeRow) -> Row {
    let log_type = match row.kind {
        RowKind::Prewrite => LogType::Prewrite,
        RowKind::Commit => LogType::Commit,
        RowKind::Rollback => LogType::Rollback,
        RowKind::Committed => LogType::Committed,
    };
    let op_type = match row.op {
        None => OpType::Unknown,
        Some(Op::Put) => OpType::Put,
        Some(Op::Delete) => OpType::Delete,
    };
    Row {
        start_ts: row.start_ts.get(),
        commit_ts: row.commit_ts.get(),
        r#type: log_type.into(),
        op_type: op_type.into(),
        key: row.key,
        value: row.value,
        old_value: row.old_value,
        expire_ts_unix_secs: 0,
        txn_source: row.txn_source,
        generation: 0,
    }
}

fn size_of(row: &Row) -> usize {
    row.key.len() + row.value.len() + row.old_value.len()
}

/// One event with all of `rows`, however large.
pub(crate) fn rows(request: RequestId, region: RegionId, rows: Vec<Row>) -> (Event, EventSize) {
    let size = EventSize { rows: rows.len(), bytes: rows.iter().map(size_of).sum() };
    (event(request, region, Kind::Entries(Entries { entries: rows })), size)
}

/// Rows cut into events of limited size.
pub(crate) fn pack(
    request: RequestId,
    region: RegionId,
    all: impl IntoIterator<Item = Row>,
) -> Vec<(Event, EventSize)> {
    let mut events = Vec::new();
    let (mut current, mut bytes) = (Vec::new(), 0);
    for row in all {
        let size = size_of(&row);
        if !current.is_empty() && bytes + size >= EVENT_BYTES {
            events.push(rows(request, region, std::mem::take(&mut current)));
            bytes = 0;
        }
        bytes += size;
        current.push(row);
    }
    if !current.is_empty() {
        events.push(rows(request, region, current));
    }
    events
}

/// The mark after the last row of a scan.
pub(crate) fn initialized(request: RequestId, region: RegionId) -> Event {
    let mark = Row { r#type: LogType::Initialized.into(), ..Row::default() };
    event(request, region, Kind::Entries(Entries { entries: vec![mark] }))
}

pub(crate) fn error(request: RequestId, region: RegionId, error: Error) -> Event {
    event(request, region, Kind::Error(error))
}

/// A resolved timestamp as clients before 4.0.8 take it.
pub(crate) fn resolved(request: RequestId, region: RegionId, ts: u64) -> Event {
    event(request, region, Kind::ResolvedTs(ts))
}

fn event(request: RequestId, region: RegionId, kind: Kind) -> Event {
    Event { region_id: region.get(), index: 0, request_id: request.0, event: Some(kind) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn of_size(bytes: usize) -> Row {
        Row { value: Bytes::from(vec![0; bytes]), ..Row::default() }
    }

    #[test]
    fn events_end_before_their_limit_and_a_large_row_is_alone() {
        let sizes = [EVENT_BYTES / 2, EVENT_BYTES / 2 - 1, 1, EVENT_BYTES * 3, 1];
        let events = pack(RequestId(1), RegionId(2), sizes.map(of_size));
        let rows: Vec<usize> = events.iter().map(|(_, size)| size.rows).collect();
        // The first two stay one byte below the limit; one byte more would reach it.
        assert_eq!(rows, [2, 1, 1, 1]);
    }
}
