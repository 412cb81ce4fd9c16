//! Columns and their types.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use tidegate_core::ColumnId;

use super::{CiName, base64_bytes, lenient, list, number_enum};

number_enum! {
    /// How far an object is on its way in or out (`reference/tidb-schema-and-ddl.md` §1.7).
    pub enum SchemaState: u8 {
        /// Does not exist.
        None = 0,
        /// Only deletions touch it.
        DeleteOnly = 1,
        /// Written, not readable.
        WriteOnly = 2,
        /// Written, old rows are being filled in.
        WriteReorganization = 3,
        /// Being removed from old rows.
        DeleteReorganization = 4,
        /// In full use.
        Public = 5,
        /// Waiting for TiFlash replicas.
        ReplicaOnly = 6,
        /// Only global transactions may use it.
        GlobalTxnOnly = 7,
    }
}

number_enum! {
    /// The MySQL type code of a column (`reference/tidb-schema-and-ddl.md` §1.5).
    pub enum SqlType: u8 {
        /// Unspecified; the columns of a view.
        Unspecified = 0,
        /// TINYINT and BOOL.
        TinyInt = 1,
        /// SMALLINT.
        SmallInt = 2,
        /// INT.
        Int = 3,
        /// FLOAT.
        Float = 4,
        /// DOUBLE.
        Double = 5,
        /// NULL, not in stored columns.
        Null = 6,
        /// TIMESTAMP.
        Timestamp = 7,
        /// BIGINT.
        BigInt = 8,
        /// MEDIUMINT.
        MediumInt = 9,
        /// DATE.
        Date = 10,
        /// TIME.
        Time = 11,
        /// DATETIME.
        DateTime = 12,
        /// YEAR.
        Year = 13,
        /// Unused since MySQL 4.1.
        NewDate = 14,
        /// VARCHAR and VARBINARY.
        VarChar = 15,
        /// BIT.
        Bit = 16,
        /// VECTOR of float32.
        Vector = 225,
        /// JSON.
        Json = 245,
        /// DECIMAL.
        Decimal = 246,
        /// ENUM.
        Enum = 247,
        /// SET.
        Set = 248,
        /// TINYBLOB and TINYTEXT.
        TinyBlob = 249,
        /// MEDIUMBLOB and MEDIUMTEXT.
        MediumBlob = 250,
        /// LONGBLOB and LONGTEXT.
        LongBlob = 251,
        /// BLOB and TEXT.
        Blob = 252,
        /// VAR_STRING, not in stored columns.
        VarString = 253,
        /// CHAR and BINARY.
        Char = 254,
        /// GEOMETRY, unused.
        Geometry = 255,
    }
}

impl SqlType {
    /// The five integer types (YEAR and BIT are not among them).
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::TinyInt | Self::SmallInt | Self::MediumInt | Self::Int | Self::BigInt)
    }

    /// CHAR, VARCHAR and their binary forms.
    pub const fn is_char(self) -> bool {
        matches!(self, Self::Char | Self::VarChar | Self::VarString)
    }

    /// The TEXT and BLOB family.
    pub const fn is_blob(self) -> bool {
        matches!(self, Self::TinyBlob | Self::Blob | Self::MediumBlob | Self::LongBlob)
    }

    /// Types whose value is a point on the calendar: DATE, DATETIME, TIMESTAMP.
    pub const fn is_calendar(self) -> bool {
        matches!(self, Self::Date | Self::DateTime | Self::Timestamp | Self::NewDate)
    }
}

/// The flag bits of a column type (`reference/tidb-schema-and-ddl.md` §1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ColumnFlags(pub u64);

impl ColumnFlags {
    /// NOT NULL.
    pub const NOT_NULL: Self = Self(1);
    /// Part of the primary key.
    pub const PRIMARY_KEY: Self = Self(1 << 1);
    /// The only column of a unique index.
    pub const UNIQUE_KEY: Self = Self(1 << 2);
    /// First column of some index.
    pub const MULTIPLE_KEY: Self = Self(1 << 3);
    /// BLOB or TEXT.
    pub const BLOB: Self = Self(1 << 4);
    /// UNSIGNED.
    pub const UNSIGNED: Self = Self(1 << 5);
    /// ZEROFILL.
    pub const ZEROFILL: Self = Self(1 << 6);
    /// Binary string, or any time, JSON or vector column.
    pub const BINARY: Self = Self(1 << 7);
    /// AUTO_INCREMENT.
    pub const AUTO_INCREMENT: Self = Self(1 << 9);
    /// No default value.
    pub const NO_DEFAULT: Self = Self(1 << 12);
    /// ON UPDATE CURRENT_TIMESTAMP.
    pub const ON_UPDATE_NOW: Self = Self(1 << 13);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// `Flen` and `Decimal` of types that have none.
pub const UNSPECIFIED_LENGTH: i64 = -1;

/// The type of a column (`reference/tidb-schema-and-ddl.md` §1.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FieldType {
    /// Type code.
    #[serde(rename = "Tp")]
    pub tp: SqlType,
    /// Flag bits.
    #[serde(rename = "Flag")]
    pub flags: ColumnFlags,
    /// Display width, characters, bits or dimensions, by type; −1 = unspecified.
    #[serde(rename = "Flen")]
    pub flen: i64,
    /// Digits after the point, or of fractional seconds; −1 = unspecified.
    #[serde(rename = "Decimal")]
    pub decimal: i64,
    /// Character set; `binary` for everything that is not text.
    #[serde(rename = "Charset", deserialize_with = "lenient")]
    pub charset: String,
    /// Collation.
    #[serde(rename = "Collate", deserialize_with = "lenient")]
    pub collate: String,
    /// Members of ENUM and SET, in order.
    #[serde(rename = "Elems", with = "list")]
    pub elems: Vec<String>,
    /// Which members were written as binary literals.
    #[serde(rename = "ElemsIsBinaryLit", with = "list")]
    pub elems_is_binary_lit: Vec<bool>,
    /// The hidden column of a multi-valued index: its values are JSON arrays of this type.
    #[serde(rename = "Array")]
    pub array: bool,
}

impl FieldType {
    /// Whether the column may not be NULL.
    pub const fn not_null(&self) -> bool {
        self.flags.has(ColumnFlags::NOT_NULL)
    }

    /// Whether the column is UNSIGNED.
    pub const fn unsigned(&self) -> bool {
        self.flags.has(ColumnFlags::UNSIGNED)
    }

    /// Whether the column holds bytes rather than text.
    pub fn is_binary(&self) -> bool {
        self.charset == "binary"
    }
}

/// A default value as metadata holds it: text, or (in old clusters) a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DefaultValue {
    /// Text form. Bytes that are not UTF-8 are lost here; BIT columns have them in a field of their own.
    Text(String),
    /// A bare number.
    Number(serde_json::Number),
}

impl DefaultValue {
    /// The text form.
    pub fn as_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Number(number) => Cow::Owned(number.to_string()),
        }
    }
}

/// A column (`reference/tidb-schema-and-ddl.md` §1.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnInfo {
    /// Id used in row values; above 0, never reused.
    pub id: ColumnId,
    /// Name.
    pub name: CiName,
    /// Position in the table's column list.
    pub offset: usize,
    /// The value of rows that lack the column, fixed when the column was added.
    pub origin_default: Option<DefaultValue>,
    /// The same as bytes, for BIT only.
    #[serde(with = "base64_bytes")]
    pub origin_default_bit: Option<Vec<u8>>,
    /// The default of new rows.
    pub default: Option<DefaultValue>,
    /// The same as bytes, for BIT only.
    #[serde(with = "base64_bytes")]
    pub default_bit: Option<Vec<u8>>,
    /// Whether `default` is the text of an expression such as `uuid()`.
    pub default_is_expr: bool,
    /// The expression of a generated column, else empty.
    #[serde(deserialize_with = "lenient")]
    pub generated_expr_string: String,
    /// Whether a generated column is stored rather than virtual.
    pub generated_stored: bool,
    /// Lower-case names of the columns that a generated column depends on.
    #[serde(rename = "dependences")]
    pub dependencies: Option<BTreeMap<String, Nothing>>,
    /// Type.
    #[serde(rename = "type")]
    pub field_type: FieldType,
    /// The type it is changing to during some in-place MODIFY COLUMN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing_type: Option<FieldType>,
    /// State.
    pub state: SchemaState,
    /// Comment.
    #[serde(deserialize_with = "lenient")]
    pub comment: String,
    /// Whether it backs an expression index and cannot be named in SQL.
    pub hidden: bool,
    /// Where an in-flight column gets its values from.
    pub change_state_info: Option<ChangeState>,
    /// 0: TIMESTAMP defaults are in the server's zone; from 1 on in UTC.
    pub version: u64,
}

impl ColumnInfo {
    /// Whether SQL sees the column.
    pub const fn is_public(&self) -> bool {
        matches!(self.state, SchemaState::Public)
    }

    /// Whether the column is computed when read and never written.
    pub fn is_virtual(&self) -> bool {
        self.is_generated() && !self.generated_stored
    }

    /// Whether the column is computed from others, stored or virtual.
    pub fn is_generated(&self) -> bool {
        !self.generated_expr_string.is_empty()
    }
}

/// The column that an in-flight one is computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeState {
    /// That column's offset, relative to the in-flight one.
    pub relative_col_offset: i64,
}

/// `{}`: the value side of TiDB's name sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing {}
