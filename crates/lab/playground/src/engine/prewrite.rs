//! Prewrite: the first phase of a transaction, or its only one (`reference/tikv-kv-protocol.md` §7.2).

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, StartTs, Ts};

use super::{
    Applied, ChangeRow, ConflictReason, Engine, KeyState, Lock, LockKind, Outcome, TxnError, Version,
    VersionKind, above,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MutationOp {
    Put,
    Delete,
    Lock,
    /// A put of a key that must not exist.
    Insert,
    /// Writes nothing, but the key must not exist.
    CheckNotExists,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Assertion {
    #[default]
    None,
    Exist,
    NotExist,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum AssertionLevel {
    #[default]
    Off,
    Fast,
    Strict,
}

/// What a pessimistic transaction promises about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum PessimisticAction {
    /// Not locked before; no check.
    #[default]
    Skip,
    /// Locked before: the pessimistic lock must be there.
    DoPessimisticCheck,
    /// Not locked before; checked as an optimistic transaction would.
    DoConstraintCheck,
}

#[derive(Clone, Debug)]
pub(crate) struct Mutation {
    pub(crate) op: MutationOp,
    /// Raw.
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) assertion: Assertion,
    pub(crate) pessimistic: PessimisticAction,
    pub(crate) expected_for_update_ts: Option<Ts>,
}

#[derive(Clone, Debug)]
pub(crate) struct Prewrite {
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) primary: Bytes,
    pub(crate) start_ts: StartTs,
    pub(crate) ttl_ms: u64,
    pub(crate) skip_constraint_check: bool,
    /// Zero for an optimistic transaction.
    pub(crate) for_update_ts: Ts,
    pub(crate) txn_size: u64,
    pub(crate) min_commit_ts: CommitTs,
    /// Zero: no upper bound.
    pub(crate) max_commit_ts: CommitTs,
    pub(crate) async_commit: bool,
    /// Of an async-commit transaction.
    pub(crate) secondaries: Vec<Bytes>,
    pub(crate) one_phase: bool,
    pub(crate) assertion_level: AssertionLevel,
    pub(crate) is_retry: bool,
    pub(crate) txn_source: u64,
}

/// The answer to a prewrite; both zero for plain two-phase commit and after a fall-back to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prewritten {
    pub(crate) min_commit_ts: CommitTs,
    pub(crate) one_phase_commit_ts: CommitTs,
}

/// What is to be written for a mutation that passed its checks.
enum Plan {
    /// Nothing: the lock is there already.
    Held(CommitTs),
    /// Nothing: only a check was asked for.
    Checked,
    Write {
        ttl_ms: u64,
        min_commit_ts: CommitTs,
        for_update_ts: Ts,
    },
}

/// Why a mutation cannot be planned.
enum Refusal {
    Failed(TxnError),
    /// This very transaction has committed the key: a late repetition of a request.
    Committed(CommitTs),
}

impl Engine {
    /// Locks all keys of the request, or commits them at once, or changes nothing. All locked keys are
    /// reported; any other reason stops at the first.
    pub(crate) fn prewrite(&mut self, request: &Prewrite) -> Result<Prewritten, Vec<TxnError>> {
        let mut plans = Vec::with_capacity(request.mutations.len());
        let (mut locked, mut failed_assertion) = (Vec::new(), None);
        for mutation in &request.mutations {
            let encoded = Bytes::from(to_region_key(&mutation.key));
            match self.plan(&encoded, request, mutation) {
                Ok(plan) => plans.push((encoded, mutation, plan)),
                Err(Refusal::Committed(commit_ts)) => return Ok(repeated(request, commit_ts)),
                Err(Refusal::Failed(error @ TxnError::Locked(_))) => locked.push(error),
                Err(Refusal::Failed(error @ TxnError::AssertionFailed { .. })) => {
                    failed_assertion.get_or_insert(error);
                }
                Err(Refusal::Failed(error)) => return Err(vec![error]),
            }
        }
        if locked.is_empty() {
            locked.extend(failed_assertion);
        }
        if locked.is_empty() { Ok(self.write(request, plans)) } else { Err(locked) }
    }

    fn plan(&mut self, encoded: &Bytes, request: &Prewrite, mutation: &Mutation) -> Result<Plan, Refusal> {
        let checked = match self.keys.get(encoded) {
            Some(state) => state.check_prewrite(request, mutation),
            None => check_absent(request, mutation),
        };
        let plan = checked.map_err(|error| self.repetition(encoded, request, error))?;
        if mutation.op == MutationOp::CheckNotExists {
            self.raise_max_ts(request.start_ts.ts());
            return Ok(Plan::Checked);
        }
        Ok(plan)
    }

    /// A refusal that a repetition of an already committed request would also meet is success instead.
    fn repetition(&self, encoded: &[u8], request: &Prewrite, error: TxnError) -> Refusal {
        let repeatable = match &error {
            TxnError::Locked(_) | TxnError::PessimisticLockNotFound { .. } => true,
            TxnError::Conflict { conflict_commit_ts, .. } => conflict_commit_ts.ts() > request.start_ts.ts(),
            _ => false,
        };
        match self.outcome(encoded, request.start_ts) {
            Outcome::Committed(commit_ts) if repeatable => Refusal::Committed(commit_ts),
            _ => Refusal::Failed(error),
        }
    }

    fn write(&mut self, request: &Prewrite, plans: Vec<(Bytes, &Mutation, Plan)>) -> Prewritten {
        let floor = above(&[self.max_ts, request.start_ts.ts(), request.for_update_ts]);
        let wants_min = request.async_commit || request.one_phase;
        let min_commit_ts = plans
            .iter()
            .map(|(_, _, plan)| match plan {
                Plan::Held(min) => *min,
                Plan::Checked => CommitTs::ZERO,
                Plan::Write { min_commit_ts, .. } => floor.max(*min_commit_ts),
            })
            .max()
            .unwrap_or(CommitTs::ZERO);
        let too_late = request.max_commit_ts > CommitTs::ZERO && min_commit_ts > request.max_commit_ts;
        let held = plans.iter().any(|(_, _, plan)| matches!(plan, Plan::Held(_)));
        let applied = self.next_applied();
        if request.one_phase && !too_late && !held {
            self.write_one_phase(request, plans, min_commit_ts, applied);
            return Prewritten { one_phase_commit_ts: min_commit_ts, ..Prewritten::default() };
        }
        let async_commit = request.async_commit && !too_late;
        self.write_locks(request, plans, async_commit.then_some(floor), applied);
        let answer = if wants_min && async_commit { min_commit_ts } else { CommitTs::ZERO };
        Prewritten { min_commit_ts: answer, ..Prewritten::default() }
    }

    /// Writes locks. `async_floor` is the least commit timestamp of an async-commit transaction.
    fn write_locks(
        &mut self,
        request: &Prewrite,
        plans: Vec<(Bytes, &Mutation, Plan)>,
        async_floor: Option<CommitTs>,
        applied: Applied,
    ) {
        for (encoded, mutation, plan) in plans {
            let Plan::Write { ttl_ms, min_commit_ts, for_update_ts } = plan else { continue };
            let Some(kind) = lock_kind(mutation.op) else { continue };
            let is_primary = mutation.key == request.primary;
            let rolled_back = self.take_lock(&encoded).map(|lock| lock.rolled_back).unwrap_or_default();
            let lock = Lock {
                kind,
                primary: request.primary.clone(),
                start_ts: request.start_ts,
                ttl_ms,
                value: mutation.value.clone(),
                for_update_ts,
                txn_size: request.txn_size,
                min_commit_ts: async_floor.map_or(min_commit_ts, |floor| floor.max(min_commit_ts)),
                async_commit: async_floor.is_some(),
                secondaries: match async_floor {
                    Some(_) if is_primary => request.secondaries.clone(),
                    _ => Vec::new(),
                },
                rolled_back,
                txn_source: request.txn_source,
                prewritten: applied,
            };
            self.observe_prewrite(&encoded, &mutation.key, &lock);
            self.put_lock(encoded, &mutation.key, lock);
        }
    }

    fn write_one_phase(
        &mut self,
        request: &Prewrite,
        plans: Vec<(Bytes, &Mutation, Plan)>,
        commit_ts: CommitTs,
        applied: Applied,
    ) {
        for (encoded, mutation, plan) in plans {
            let Plan::Write { .. } = plan else { continue };
            let Some(kind) = version_kind(mutation.op) else { continue };
            let rolled_back = self.take_lock(&encoded).map(|lock| lock.rolled_back).unwrap_or_default();
            let version = Version {
                kind,
                start_ts: request.start_ts,
                commit_ts,
                value: mutation.value.clone(),
                txn_source: request.txn_source,
                overlapped_rollback: rolled_back.iter().any(|ts| ts.ts() == commit_ts.ts()),
                applied,
                prewritten: applied,
            };
            let state =
                self.keys.entry(encoded.clone()).or_insert_with(|| KeyState::new(mutation.key.clone()));
            self.observed.extend(ChangeRow::committed(&encoded, state, &version));
            state.insert(version);
        }
    }

    pub(super) fn observe_prewrite(&mut self, encoded: &Bytes, raw: &Bytes, lock: &Lock) {
        let seen_ts = lock.start_ts.ts().max(lock.for_update_ts);
        let old_value = self.keys.get(encoded).map(|state| state.value_at(seen_ts)).unwrap_or_default();
        self.observed.extend(ChangeRow::prewrite(encoded, raw, lock, old_value));
    }
}

/// The answer to a request whose transaction is committed already.
fn repeated(request: &Prewrite, commit_ts: CommitTs) -> Prewritten {
    if request.one_phase {
        Prewritten { one_phase_commit_ts: commit_ts, ..Prewritten::default() }
    } else {
        Prewritten { min_commit_ts: commit_ts, ..Prewritten::default() }
    }
}

fn lock_kind(op: MutationOp) -> Option<LockKind> {
    match op {
        MutationOp::Put | MutationOp::Insert => Some(LockKind::Put),
        MutationOp::Delete => Some(LockKind::Delete),
        MutationOp::Lock => Some(LockKind::Lock),
        MutationOp::CheckNotExists => None,
    }
}

fn version_kind(op: MutationOp) -> Option<VersionKind> {
    match lock_kind(op)? {
        LockKind::Put => Some(VersionKind::Put),
        LockKind::Delete => Some(VersionKind::Delete),
        LockKind::Lock | LockKind::Pessimistic => Some(VersionKind::Lock),
    }
}

fn check_absent(request: &Prewrite, mutation: &Mutation) -> Result<Plan, TxnError> {
    // A pessimistic lock that was lost can be amended here: nothing newer is in its way.
    let missing = KeyState::new(mutation.key.clone());
    missing.check_assertion(request, mutation)?;
    Ok(fresh(request))
}

fn fresh(request: &Prewrite) -> Plan {
    Plan::Write {
        ttl_ms: request.ttl_ms,
        min_commit_ts: request.min_commit_ts,
        for_update_ts: request.for_update_ts,
    }
}

impl KeyState {
    fn check_prewrite(&self, request: &Prewrite, mutation: &Mutation) -> Result<Plan, TxnError> {
        let plan = match self.lock.as_deref() {
            Some(lock) if lock.start_ts != request.start_ts => {
                return Err(self.foreign_lock(request, mutation, lock));
            }
            Some(lock) if lock.kind == LockKind::Pessimistic => own_pessimistic(request, mutation, lock)?,
            Some(lock) => {
                let min = if lock.async_commit { lock.min_commit_ts } else { CommitTs::ZERO };
                return Ok(Plan::Held(min));
            }
            None => {
                if mutation.pessimistic == PessimisticAction::DoPessimisticCheck {
                    self.check_amendable(request, mutation)?;
                }
                fresh(request)
            }
        };
        if self.needs_constraint_check(request, mutation) {
            self.check_constraint(request, mutation)?;
        }
        self.check_not_exists(request, mutation)?;
        self.check_assertion(request, mutation)?;
        Ok(plan)
    }

    fn foreign_lock(&self, request: &Prewrite, mutation: &Mutation, lock: &Lock) -> TxnError {
        if mutation.pessimistic == PessimisticAction::DoPessimisticCheck {
            return TxnError::PessimisticLockNotFound {
                start_ts: request.start_ts,
                key: mutation.key.clone(),
            };
        }
        let mut error = TxnError::locked(&self.raw, lock);
        if let TxnError::Locked(view) = &mut error
            && request.for_update_ts > Ts::ZERO
        {
            // Tells a pessimistic transaction to resolve this lock without regard to its age.
            view.ttl_ms = 0;
        }
        error
    }

    /// A lost pessimistic lock may be replaced only if nothing was written since the transaction began.
    fn check_amendable(&self, request: &Prewrite, mutation: &Mutation) -> Result<(), TxnError> {
        match self.newest() {
            Some(newest) if newest.commit_ts.ts() >= request.start_ts.ts() => {
                Err(TxnError::PessimisticLockNotFound {
                    start_ts: request.start_ts,
                    key: mutation.key.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    fn needs_constraint_check(&self, request: &Prewrite, mutation: &Mutation) -> bool {
        match mutation.pessimistic {
            PessimisticAction::DoPessimisticCheck => false,
            PessimisticAction::DoConstraintCheck => true,
            PessimisticAction::Skip if request.for_update_ts > Ts::ZERO => request.is_retry,
            PessimisticAction::Skip => !request.skip_constraint_check,
        }
    }

    fn check_constraint(&self, request: &Prewrite, mutation: &Mutation) -> Result<(), TxnError> {
        let Some(newest) = self.newest() else { return Ok(()) };
        let at_start = newest.commit_ts.ts() == request.start_ts.ts();
        let is_rollback = matches!(newest.kind, VersionKind::Rollback { .. });
        if at_start && (is_rollback || newest.overlapped_rollback) {
            return Err(self.conflict(request, newest, ConflictReason::SelfRolledBack));
        }
        let newer = newest.commit_ts.ts() > request.start_ts.ts();
        let optimistic = request.for_update_ts == Ts::ZERO;
        if newer && optimistic {
            return Err(self.conflict(request, newest, ConflictReason::Optimistic));
        }
        if newer && self.outcome(request.start_ts) == Outcome::RolledBack {
            return Err(self.conflict(request, newest, ConflictReason::SelfRolledBack));
        }
        if newer && mutation.pessimistic == PessimisticAction::DoConstraintCheck {
            return Err(self.conflict(request, newest, ConflictReason::LazyUniquenessCheck));
        }
        if !optimistic && newest.commit_ts.ts() > request.for_update_ts && !is_rollback {
            return Err(TxnError::PessimisticLockNotFound {
                start_ts: request.start_ts,
                key: mutation.key.clone(),
            });
        }
        Ok(())
    }

    fn conflict(&self, request: &Prewrite, with: &Version, reason: ConflictReason) -> TxnError {
        TxnError::Conflict {
            start_ts: request.start_ts,
            conflict_start_ts: with.start_ts,
            conflict_commit_ts: with.commit_ts,
            key: self.raw.clone(),
            primary: request.primary.clone(),
            reason,
        }
    }

    fn check_not_exists(&self, request: &Prewrite, mutation: &Mutation) -> Result<(), TxnError> {
        let must_be_new = matches!(mutation.op, MutationOp::Insert | MutationOp::CheckNotExists);
        // A key locked pessimistically was checked when it was locked.
        let unlocked = mutation.pessimistic != PessimisticAction::DoPessimisticCheck;
        let checked =
            request.for_update_ts == Ts::ZERO || mutation.pessimistic == PessimisticAction::DoConstraintCheck;
        if must_be_new && unlocked && checked && self.visible_at(Ts::MAX).is_some() {
            return Err(TxnError::AlreadyExists(self.raw.clone()));
        }
        Ok(())
    }

    fn check_assertion(&self, request: &Prewrite, mutation: &Mutation) -> Result<(), TxnError> {
        if request.assertion_level == AssertionLevel::Off {
            return Ok(());
        }
        let data = self.data_at(Ts::MAX);
        let exists = data.is_some_and(|version| version.kind == VersionKind::Put);
        let holds = match mutation.assertion {
            Assertion::None => true,
            Assertion::Exist => exists,
            Assertion::NotExist => !exists,
        };
        if holds {
            return Ok(());
        }
        Err(TxnError::AssertionFailed {
            start_ts: request.start_ts,
            key: self.raw.clone(),
            assertion: mutation.assertion,
            existing_start_ts: data.map_or(StartTs::ZERO, |version| version.start_ts),
            existing_commit_ts: data.map_or(CommitTs::ZERO, |version| version.commit_ts),
        })
    }
}

fn own_pessimistic(request: &Prewrite, mutation: &Mutation, lock: &Lock) -> Result<Plan, TxnError> {
    let (start_ts, key) = (request.start_ts, mutation.key.clone());
    if request.for_update_ts == Ts::ZERO {
        return Err(TxnError::LockTypeMismatch { start_ts, key });
    }
    if mutation.expected_for_update_ts.is_some_and(|expected| expected != lock.for_update_ts) {
        return Err(TxnError::PessimisticLockNotFound { start_ts, key });
    }
    Ok(Plan::Write {
        ttl_ms: request.ttl_ms.max(lock.ttl_ms),
        min_commit_ts: request.min_commit_ts.max(lock.min_commit_ts),
        for_update_ts: request.for_update_ts.max(lock.for_update_ts),
    })
}
