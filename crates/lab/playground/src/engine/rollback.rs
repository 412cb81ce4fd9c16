//! Rolling transactions back (`reference/tikv-kv-protocol.md` §7.4).

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, StartTs, Ts};

use super::{ChangeRow, Engine, KeyState, Outcome, TxnError};

impl Engine {
    /// Rolls back the raw keys of a transaction, all or none; fails if one is committed.
    pub(crate) fn batch_rollback(&mut self, keys: &[Bytes], start_ts: StartTs) -> Result<(), TxnError> {
        for raw in keys {
            let encoded = to_region_key(raw);
            if self.lock_of(&encoded, start_ts).is_none() {
                self.refuse_committed(raw, &encoded, start_ts)?;
            }
        }
        self.next_applied();
        for raw in keys {
            let encoded = Bytes::from(to_region_key(raw));
            let protected = self.lock_of(&encoded, start_ts).is_some_and(|lock| lock.primary == *raw);
            self.roll_back(&encoded, raw, start_ts, protected);
        }
        Ok(())
    }

    /// Rolls one raw key back unless its lock is still alive at `current_ts` (zero: alive or not). Returns
    /// the commit timestamp if it turns out to be committed.
    pub(crate) fn cleanup(
        &mut self,
        raw: &Bytes,
        start_ts: StartTs,
        current_ts: Ts,
    ) -> Result<Option<CommitTs>, TxnError> {
        let encoded = Bytes::from(to_region_key(raw));
        match self.lock_of(&encoded, start_ts) {
            Some(lock) if current_ts != Ts::ZERO && !lock.is_expired(current_ts) => {
                Err(TxnError::locked(raw, lock))
            }
            Some(lock) => {
                let protected = lock.primary == *raw;
                self.next_applied();
                self.roll_back(&encoded, raw, start_ts, protected);
                Ok(None)
            }
            None => match self.outcome(&encoded, start_ts) {
                Outcome::Committed(commit_ts) => Ok(Some(commit_ts)),
                Outcome::RolledBack => Ok(None),
                Outcome::Unknown => {
                    self.next_applied();
                    self.roll_back(&encoded, raw, start_ts, true);
                    Ok(None)
                }
            },
        }
    }

    fn refuse_committed(&self, raw: &Bytes, encoded: &[u8], start_ts: StartTs) -> Result<(), TxnError> {
        match self.outcome(encoded, start_ts) {
            Outcome::Committed(commit_ts) => {
                Err(TxnError::Committed { start_ts, key: raw.clone(), commit_ts })
            }
            _ => Ok(()),
        }
    }

    /// Removes the transaction's lock, if it is there, and leaves a record that defeats a late prewrite.
    pub(super) fn roll_back(&mut self, encoded: &Bytes, raw: &Bytes, start_ts: StartTs, protected: bool) {
        if self.lock_of(encoded, start_ts).is_some() {
            self.take_lock(encoded);
        }
        let applied = self.applied;
        let state = self.keys.entry(encoded.clone()).or_insert_with(|| KeyState::new(raw.clone()));
        if let Some(other) = state.lock.as_deref_mut() {
            other.rolled_back.push(start_ts);
        }
        if state.insert_rollback(start_ts, protected, applied) {
            self.observed.push(ChangeRow::rollback(encoded, raw, start_ts));
        }
    }
}
