//! The rows of a change feed, from protobuf messages to typed data without copying a byte.

use bytes::Bytes;
use tidegate_core::{CommitTs, Op, RawChange, RegionId, StartTs};
use tidegate_proto::cdcpb::event::LogType;
use tidegate_proto::cdcpb::event::{Row as Message, row::OpType};

/// A transaction's write of one key, as far as rows identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnKey {
    /// The transaction.
    pub start_ts: StartTs,
    /// The raw key.
    pub key: Bytes,
}

/// What a transaction is going to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prewrite {
    /// Put or delete; decides, never whether the value is empty.
    pub op: Op,
    /// The value to be written.
    pub value: Bytes,
    /// The newest value before the transaction.
    pub old_value: Bytes,
    /// Orders repeated prewrites of a pipelined transaction; zero means unknown.
    pub generation: u64,
}

/// One row of a change feed (`reference/cdc-protocol.md` §2, §5, §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A transaction wrote a lock with its value.
    Prewrite(TxnKey, Prewrite),
    /// A transaction's lock became a version. Value and old value come from the prewrite.
    Commit(TxnKey, CommitTs),
    /// A transaction's lock is void.
    Rollback(TxnKey),
    /// A version, complete in itself.
    Committed(RawChange),
    /// The incremental scan is over.
    Initialized,
}

/// A row that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// A row type this client does not know.
    #[error("unknown row type {0}")]
    Type(i32),
    /// An operation that is neither put nor delete.
    #[error("unknown operation {0}")]
    Op(i32),
}

impl Row {
    /// The raw key; none for [`Row::Initialized`].
    pub fn key(&self) -> Option<&Bytes> {
        match self {
            Self::Prewrite(txn, _) | Self::Commit(txn, _) | Self::Rollback(txn) => Some(&txn.key),
            Self::Committed(change) => Some(&change.key),
            Self::Initialized => None,
        }
    }

    /// Bytes of key and values.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Prewrite(txn, prewrite) => txn.key.len() + prewrite.value.len() + prewrite.old_value.len(),
            Self::Commit(txn, _) | Self::Rollback(txn) => txn.key.len(),
            Self::Committed(change) => change.size_bytes(),
            Self::Initialized => 0,
        }
    }

    /// A row of `region_id` from its message. Bytes stay slices of the message's buffer.
    pub fn from_proto(message: Message, region_id: RegionId) -> Result<Self, RowError> {
        let log_type = LogType::try_from(message.r#type).map_err(|_| RowError::Type(message.r#type))?;
        let txn = TxnKey { start_ts: StartTs::new(message.start_ts), key: message.key };
        let commit_ts = CommitTs::new(message.commit_ts);
        Ok(match log_type {
            LogType::Unknown => return Err(RowError::Type(message.r#type)),
            LogType::Initialized => Self::Initialized,
            LogType::Rollback => Self::Rollback(txn),
            LogType::Commit => Self::Commit(txn, commit_ts),
            LogType::Prewrite => {
                let op = op(message.op_type)?;
                let Message { value, old_value, generation, .. } = message;
                Self::Prewrite(txn, Prewrite { op, value, old_value, generation })
            }
            LogType::Committed => Self::Committed(RawChange {
                op: op(message.op_type)?,
                key: txn.key,
                value: message.value,
                old_value: message.old_value,
                start_ts: txn.start_ts,
                commit_ts,
                region_id,
            }),
        })
    }
}

fn op(number: i32) -> Result<Op, RowError> {
    match OpType::try_from(number) {
        Ok(OpType::Put) => Ok(Op::Put),
        Ok(OpType::Delete) => Ok(Op::Delete),
        Ok(OpType::Unknown) | Err(_) => Err(RowError::Op(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(log_type: LogType, op_type: OpType) -> Message {
        Message {
            start_ts: 5,
            commit_ts: 9,
            r#type: log_type.into(),
            op_type: op_type.into(),
            key: Bytes::from_static(b"k"),
            ..Default::default()
        }
    }

    #[test]
    fn a_put_of_an_empty_value_stays_a_put() {
        let row = Row::from_proto(message(LogType::Committed, OpType::Put), RegionId(2)).unwrap();
        let Row::Committed(change) = row else { panic!("{row:?}") };
        assert_eq!((change.op, change.value.len()), (Op::Put, 0));
    }

    #[test]
    fn rows_that_mean_nothing_are_errors() {
        let unknown_op = message(LogType::Prewrite, OpType::Unknown);
        assert_eq!(Row::from_proto(unknown_op, RegionId(2)), Err(RowError::Op(0)));
        let unknown_type = message(LogType::Unknown, OpType::Put);
        assert_eq!(Row::from_proto(unknown_type, RegionId(2)), Err(RowError::Type(0)));
        let future_type = Message { r#type: 77, ..message(LogType::Unknown, OpType::Put) };
        assert_eq!(Row::from_proto(future_type, RegionId(2)), Err(RowError::Type(77)));
    }

    #[test]
    fn commits_and_rollbacks_need_no_operation() {
        let commit = Row::from_proto(message(LogType::Commit, OpType::Unknown), RegionId(2)).unwrap();
        let txn = TxnKey { start_ts: StartTs::new(5), key: Bytes::from_static(b"k") };
        assert_eq!(commit, Row::Commit(txn.clone(), CommitTs::new(9)));
        let rollback = Row::from_proto(message(LogType::Rollback, OpType::Unknown), RegionId(2)).unwrap();
        assert_eq!(rollback, Row::Rollback(txn));
    }
}
