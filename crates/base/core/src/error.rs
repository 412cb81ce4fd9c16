//! What an error asks of whom.

use std::borrow::Cow;

/// Who must act on an error, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Transient: the same call may succeed if repeated after a pause.
    Retry,
    /// Nothing is wrong yet; something else must happen first.
    Wait,
    /// A person must change something: configuration, permissions, disk space, the other system.
    Operator,
    /// The input breaks a contract that its producer promised to keep; continuing would lose data silently.
    Corrupt,
    /// A defect of this program.
    Bug,
}

/// An error that can be shown to a person: what happened (its `Display`), the detail (its source chain) and a
/// hint; each with a stable code that has a page in `docs/errors/`.
pub trait Diagnostic: std::error::Error {
    /// A stable code such as `TG-PD-001`.
    fn code(&self) -> &'static str;

    /// Who must act.
    fn class(&self) -> ErrorClass;

    /// What to try next, lower case and without a full stop; `None` where there is nothing to try.
    fn hint(&self) -> Option<Cow<'static, str>> {
        None
    }
}
