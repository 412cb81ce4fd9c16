//! How a change looks on one line.

use tidegate_codec::event::{DdlEvent, RowChanged, RowKind};
use tidegate_codec::row::RowView;
use tidegate_codec::text::write_text;
use tidegate_core::span::Hex;
use tidegate_mini::CallbackError;

/// The form of lines.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lines {
    /// For people: updates show what changed.
    Text,
    /// One JSON object a line; values as the text that MySQL's protocol gives, bytes as `{"hex"}`.
    Json,
}

impl Lines {
    /// A row of table `name`.
    pub(crate) fn row(self, name: &str, row: &RowChanged<'_>) -> Result<String, CallbackError> {
        let (old, new) = (cells(row.pre.as_ref())?, cells(row.row.as_ref())?);
        Ok(match self {
            Self::Text => text_line(name, row, &old, &new),
            Self::Json => {
                let line = serde_json::json!({
                    "commit_ts": row.commit_ts().to_string(),
                    "table": name,
                    "op": operation(row.kind),
                    "old": json_cells(&old),
                    "row": json_cells(&new),
                });
                line.to_string()
            }
        })
    }

    /// A schema change.
    pub(crate) fn ddl(self, ddl: &DdlEvent) -> String {
        match self {
            Self::Text => format!("{}  ddl     {}", ddl.finished_ts, one_line(&ddl.query)),
            Self::Json => {
                let line = serde_json::json!({
                    "commit_ts": ddl.finished_ts.to_string(), "op": "ddl", "query": ddl.query,
                });
                line.to_string()
            }
        }
    }
}

/// Name and text of each column; `None` is NULL.
type Cells = Vec<(String, Option<Vec<u8>>)>;

fn cells(row: Option<&RowView<'_>>) -> Result<Cells, CallbackError> {
    let Some(row) = row else { return Ok(Vec::new()) };
    let columns = row.table().public_columns();
    columns
        .map(|(index, column)| {
            let value = row.selected(index)?;
            let mut text = Vec::new();
            write_text(&value, &mut text)?;
            Ok((column.name.to_string(), (!value.is_null()).then_some(text)))
        })
        .collect()
}

const fn operation(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Insert => "insert",
        RowKind::Update => "update",
        RowKind::Delete => "delete",
    }
}

fn text_line(name: &str, row: &RowChanged<'_>, old: &Cells, new: &Cells) -> String {
    let cells = match row.kind {
        RowKind::Insert => new.iter().map(|(column, value)| format!("{column}={}", show(value))).collect(),
        RowKind::Delete => old.iter().map(|(column, value)| format!("{column}={}", show(value))).collect(),
        RowKind::Update => changed(row, old, new),
    };
    format!("{}  {}  {name}  {}", row.commit_ts(), operation(row.kind), cells.join("  "))
}

/// The key's columns, then what changed, as `column=old→new`.
fn changed(row: &RowChanged<'_>, old: &Cells, new: &Cells) -> Vec<String> {
    let key: Vec<&str> = row
        .table()
        .handle_key()
        .unwrap_or_default()
        .iter()
        .filter_map(|column| Some(row.table().columns.get(*column)?.name.as_str()))
        .collect();
    let mut shown = Vec::new();
    for ((column, before), (_, after)) in old.iter().zip(new) {
        if before != after {
            shown.push(format!("{column}={}→{}", show(before), show(after)));
        } else if key.contains(&column.as_str()) {
            shown.push(format!("{column}={}", show(after)));
        }
    }
    shown
}

fn show(value: &Option<Vec<u8>>) -> String {
    match value.as_deref().map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => "NULL".to_owned(),
        Some((_, Ok(text))) if text.chars().all(|c| c.is_ascii_digit() || "+-.".contains(c)) => {
            text.to_owned()
        }
        Some((_, Ok(text))) => format!("{text:?}"),
        Some((bytes, Err(_))) => format!("0x{}", Hex(bytes)),
    }
}

fn json_cells(cells: &Cells) -> serde_json::Value {
    if cells.is_empty() {
        return serde_json::Value::Null;
    }
    let cell = |(column, value): &(String, Option<Vec<u8>>)| (column.clone(), json_cell(value.as_deref()));
    serde_json::Value::Object(cells.iter().map(cell).collect())
}

fn json_cell(value: Option<&[u8]>) -> serde_json::Value {
    match value.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => serde_json::Value::Null,
        Some((_, Ok(text))) => text.into(),
        Some((bytes, Err(_))) => serde_json::json!({ "hex": Hex(bytes).to_string() }),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
