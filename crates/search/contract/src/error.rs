//! A breach of the contract: code, place, detail; and how it travels in a gRPC status.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use prost::Message;
use tidegate_core::{Diagnostic, ErrorClass};
use tidegate_proto::searchfabric::v1::SfError;
pub use tidegate_proto::searchfabric::v1::SfErrorCode;
use tonic::{Code, Status};

/// A rule of the contract was broken. `Display` gives `path: detail`; the detail never holds a value of a row
/// (I11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    code: SfErrorCode,
    path: String,
    detail: Cow<'static, str>,
}

impl Breach {
    /// A breach at `path` (empty when it concerns no field).
    pub fn new(code: SfErrorCode, path: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, path: path.into(), detail: detail.into() }
    }

    /// The error code.
    pub const fn code(&self) -> SfErrorCode {
        self.code
    }

    /// The field that is wrong, such as `entries[3].row_mutation.fields["a"]`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The same breach seen from the message that holds the field at `outer`.
    #[must_use]
    pub fn within(mut self, outer: impl fmt::Display) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{outer}{separator}{}", self.path);
        self
    }

    /// The breach as a response carries it.
    pub fn to_proto(&self) -> SfError {
        SfError { code: self.code.into(), message: self.detail.to_string(), field_path: self.path.clone() }
    }

    /// The breach as a gRPC status, with [`SfError`] in its details.
    pub fn to_status(&self) -> Status {
        let details = Bytes::from(self.to_proto().encode_to_vec());
        Status::with_details(grpc_code(self.code), format!("{}: {self}", self.code.as_str_name()), details)
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.detail);
        }
        write!(f, "{} {}", self.path, self.detail)
    }
}

impl std::error::Error for Breach {}

impl From<SfError> for Breach {
    fn from(error: SfError) -> Self {
        Self { code: error.code(), path: error.field_path, detail: Cow::Owned(error.message) }
    }
}

impl Diagnostic for Breach {
    fn code(&self) -> &'static str {
        self.code.as_str_name()
    }

    fn class(&self) -> ErrorClass {
        class(self.code)
    }
}

/// The [`Breach`] that a status carries; `None` for statuses that the contract did not make.
pub fn from_status(status: &Status) -> Option<Breach> {
    let error = SfError::decode(status.details()).ok()?;
    (error.code() != SfErrorCode::SfUnspecified).then(|| error.into())
}

/// Who must act on an error, and how.
pub const fn class(code: SfErrorCode) -> ErrorClass {
    use SfErrorCode as E;
    match code {
        E::SfRateLimited | E::SfUnavailable => ErrorClass::Retry,
        E::SfFreshnessTimeout | E::SfStalenessExceeded | E::SfStoragePoisoned => ErrorClass::Wait,
        E::SfCollectionNotFound
        | E::SfCollectionDropped
        | E::SfTruthModeMismatch
        | E::SfPermissionDenied
        | E::SfStaleEpoch
        | E::SfPageTokenInvalid => ErrorClass::Operator,
        E::SfVersionConflict | E::SfOrderViolation | E::SfWatermarkRegression => ErrorClass::Corrupt,
        _ => ErrorClass::Bug,
    }
}

/// The gRPC code under which an error travels outside the mutation stream.
pub const fn grpc_code(code: SfErrorCode) -> Code {
    use SfErrorCode as E;
    match code {
        E::SfCollectionNotFound | E::SfCollectionDropped => Code::NotFound,
        E::SfPermissionDenied | E::SfTruthModeMismatch => Code::PermissionDenied,
        E::SfRateLimited => Code::ResourceExhausted,
        E::SfUnavailable | E::SfStoragePoisoned => Code::Unavailable,
        E::SfFreshnessTimeout => Code::DeadlineExceeded,
        E::SfInternal | E::SfUnspecified => Code::Internal,
        E::SfIdempotencyConflict
        | E::SfSchemaFenceMismatch
        | E::SfSchemaGenerationUnknown
        | E::SfSchemaGenerationInvalidated
        | E::SfStaleEpoch
        | E::SfSequenceGap
        | E::SfWatermarkRegression
        | E::SfOrderViolation
        | E::SfVersionConflict
        | E::SfStalenessExceeded => Code::FailedPrecondition,
        _ => Code::InvalidArgument,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_breach_survives_the_way_through_a_status() {
        let breach = Breach::new(SfErrorCode::SfFieldUndeclared, "fields[\"x\"]", "is not declared")
            .within("row_mutation")
            .within("entries[3]");
        assert_eq!(breach.path(), "entries[3].row_mutation.fields[\"x\"]");
        let status = breach.to_status();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(from_status(&status), Some(breach));
    }

    #[test]
    fn every_code_has_a_page() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/errors");
        let codes = (1..).map_while(|n| SfErrorCode::try_from(n).ok());
        let missing: Vec<&str> =
            codes.map(|c| c.as_str_name()).filter(|c| !pages.join(format!("{c}.md")).exists()).collect();
        assert!(missing.is_empty(), "no page in docs/errors for {missing:?}");
    }

    #[test]
    fn a_foreign_status_is_no_breach() {
        assert_eq!(from_status(&Status::unavailable("connection refused")), None);
    }

    #[test]
    fn a_code_is_shown_by_its_name() {
        let breach = Breach::new(SfErrorCode::SfStaleEpoch, "", "epoch 3 is in force");
        assert_eq!(Diagnostic::code(&breach), "SF_STALE_EPOCH");
        assert_eq!(breach.to_string(), "epoch 3 is in force");
    }
}
