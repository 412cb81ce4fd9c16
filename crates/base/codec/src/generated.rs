//! Virtual generated columns: TiDB stores their expression, not their value.
//!
//! A change feed never carries them, yet `SELECT *` shows them. This module computes the expressions that
//! tables usually have, from the normalised text in the metadata (`` `a` * 2 ``,
//! `json_unquote(json_extract(`j`, _utf8mb4'$.n'))`): arithmetic, comparison, logic, CASE, CAST, and the
//! common string, number, date and JSON functions, with MySQL's rules for mixed types. What it does not know
//! it refuses with a name, rather than guess. Texts compare as a `_bin` or, by lower case, a `_ci` collation
//! would; finer points of collations are not modelled. All times are UTC.

mod datetime;
mod eval;
mod functions;
mod json;
mod lexer;
mod parser;

pub(crate) use eval::compare;

use crate::meta::FieldType;
use crate::value::Value;

/// Expressions nested deeper than this are refused; people write a handful of levels.
const DEPTH_MAX: usize = 64;
/// Most binary operators in one expression. A chain of them nests as deep as it is long, and computing it
/// must not exhaust the stack.
const OPERATORS_MAX: usize = 256;

/// Why an expression has no value here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeneratedError {
    /// The text is no expression, or nested too deep.
    #[error("cannot read the generated column's expression at byte {0}")]
    Syntax(usize),
    /// A function or operator that is not known here.
    #[error("generated column uses {0}, which is not supported")]
    Unsupported(String),
    /// The expression names a column that the table does not have.
    #[error("generated column uses the unknown column {0}")]
    UnknownColumn(String),
    /// The result is outside its type's range, for which TiDB gives an error too.
    #[error("generated column's value is out of range")]
    OutOfRange,
    /// A column that the expression needs cannot be read.
    #[error("a column that the generated column needs cannot be read")]
    Column,
}

type Result<T> = std::result::Result<T, GeneratedError>;

/// A parsed expression.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Literal(Value<'static>),
    /// A column, by its index in the table.
    Column(usize),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `IS [NOT] NULL`, `IS [NOT] TRUE`, …: the test, and whether it is negated.
    Is(Box<Expr>, Truth, bool),
    In(Box<Expr>, Vec<Expr>),
    Between(Box<Expr>, Box<(Expr, Expr)>),
    Like(Box<Expr>, Box<Expr>, char),
    /// `CASE [operand] WHEN … THEN … [ELSE …] END`.
    Case(Option<Box<Expr>>, Vec<(Expr, Expr)>, Option<Box<Expr>>),
    Cast(Box<Expr>, FieldType),
    /// `date ± INTERVAL amount unit`; the last says whether it is taken off.
    Interval(Box<Expr>, Box<Expr>, String, bool),
    Call(String, Vec<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Minus,
    Not,
    Invert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    IntDivide,
    Modulo,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Equal,
    NullEqual,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    Null,
    True,
    False,
}

/// Parses the expression text of a generated column; `column` gives the index of a column by its name.
pub(crate) fn parse(text: &str, column: &dyn Fn(&str) -> Option<usize>) -> Result<Expr> {
    parser::parse(text, column)
}

/// Where an expression gets its columns from.
pub(crate) trait Columns {
    /// The value of the column at `index`.
    fn value(&self, index: usize) -> Result<Value<'static>>;

    /// Whether texts of the column compare without regard to case.
    fn ignores_case(&self, index: usize) -> bool;
}

/// Computes an expression.
pub(crate) fn evaluate(expr: &Expr, columns: &dyn Columns) -> Result<Value<'static>> {
    eval::Evaluator { columns }.value(expr)
}

#[cfg(test)]
mod tests;
