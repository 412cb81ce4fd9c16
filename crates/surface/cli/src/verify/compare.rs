//! Our content of a table against TiDB's answer, cell by cell.

use std::collections::BTreeMap;
use std::fmt;

use tidegate_core::Ts;
use tidegate_testkit::{Cell, TableSnapshot};

use super::model::Content;

/// A row as text; `None` is NULL.
type Row = Vec<Option<Vec<u8>>>;

/// One difference, printed as one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) table: String,
    pub(crate) ts: Ts,
    pub(crate) key: String,
    pub(crate) column: String,
    pub(crate) ours: String,
    pub(crate) tidbs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, ts, key, column, ours, tidbs } = self;
        write!(f, "{table} at {ts}, key {key}, column {column}: ours {ours}, TiDB's {tidbs}")
    }
}

/// Compares one table at one timestamp.
pub(crate) struct Comparison<'a> {
    pub(crate) table: &'a str,
    pub(crate) ts: Ts,
}

impl Comparison<'_> {
    /// Every difference between `ours` and `tidbs`; either may have no such table.
    pub(crate) fn differences(
        &self,
        ours: Option<&Content>,
        tidbs: Option<&TableSnapshot>,
    ) -> Vec<Difference> {
        match (ours, tidbs) {
            (None, None) => Vec::new(),
            (Some(_), None) => vec![self.difference("*", "*", "the table exists", "it does not")],
            (None, Some(_)) => vec![self.difference("*", "*", "there is no such table", "it exists")],
            (Some(ours), Some(tidbs)) if ours.columns != tidbs.columns => {
                vec![self.difference("*", "*", &ours.columns.join(", "), &tidbs.columns.join(", "))]
            }
            (Some(ours), Some(tidbs)) => self.rows(ours, tidbs),
        }
    }

    fn rows(&self, ours: &Content, tidbs: &TableSnapshot) -> Vec<Difference> {
        let theirs = tidbs.rows.iter().map(|row| row.iter().map(bytes).collect());
        let mut by_key: BTreeMap<Row, (Vec<Row>, Vec<Row>)> = BTreeMap::new();
        for row in &ours.rows {
            by_key.entry(key_of(row, ours.key.as_deref())).or_default().0.push(row.clone());
        }
        for row in theirs {
            by_key.entry(key_of(&row, ours.key.as_deref())).or_default().1.push(row);
        }
        by_key
            .into_iter()
            .flat_map(|(key, (ours_rows, theirs_rows))| {
                self.same_key(&ours.columns, &show_row(&key), &ours_rows, &theirs_rows)
            })
            .collect()
    }

    /// Rows of one key; more than one where the table has no key, and then they are equal among themselves.
    fn same_key(&self, columns: &[String], key: &str, ours: &[Row], tidbs: &[Row]) -> Vec<Difference> {
        if let ([ours], [tidbs]) = (ours, tidbs) {
            let cells = columns.iter().zip(ours.iter().zip(tidbs));
            let unequal = cells.filter(|(_, (ours, tidbs))| ours != tidbs);
            return unequal
                .map(|(column, (a, b))| self.difference(key, column, &show(a), &show(b)))
                .collect();
        }
        if ours.len() == tidbs.len() {
            return Vec::new();
        }
        let count = |rows: &[Row]| match rows.len() {
            0 => "no row".to_owned(),
            1 => "one row".to_owned(),
            n => format!("{n} equal rows"),
        };
        vec![self.difference(key, "*", &count(ours), &count(tidbs))]
    }

    fn difference(&self, key: &str, column: &str, ours: &str, tidbs: &str) -> Difference {
        Difference {
            table: self.table.to_owned(),
            ts: self.ts,
            key: key.to_owned(),
            column: column.to_owned(),
            ours: ours.to_owned(),
            tidbs: tidbs.to_owned(),
        }
    }
}

fn bytes(cell: &Cell) -> Option<Vec<u8>> {
    cell.as_bytes().map(<[u8]>::to_vec)
}

/// The cells that identify the row: its key columns, or the whole row where the table has none.
fn key_of(row: &Row, key: Option<&[usize]>) -> Row {
    match key {
        Some(columns) => columns.iter().map(|column| row.get(*column).cloned().flatten()).collect(),
        None => row.clone(),
    }
}

fn show_row(row: &Row) -> String {
    let cells: Vec<String> = row.iter().map(show).collect();
    cells.join("|")
}

/// A cell for a person: text in quotes, other bytes in hex.
fn show(cell: &Option<Vec<u8>>) -> String {
    match cell.as_deref().map(std::str::from_utf8) {
        None => "NULL".to_owned(),
        Some(Ok(text)) => format!("{text:?}"),
        Some(Err(_)) => {
            format!("0x{}", tidegate_core::span::Hex(cell.as_deref().unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Row {
        text.split_whitespace().map(|cell| (cell != "NULL").then(|| cell.as_bytes().to_vec())).collect()
    }

    fn check(key: Option<Vec<usize>>, ours: &[&str], tidbs: &[&str], expect: &[&str]) {
        let columns = vec!["id".to_owned(), "v".to_owned()];
        let content =
            Content { columns: columns.clone(), key, rows: ours.iter().map(|row| cells(row)).collect() };
        let cell = |cell: Option<Vec<u8>>| {
            cell.map_or(Cell::Null, |text| Cell::Text(String::from_utf8(text).expect("ascii")))
        };
        let rows = tidbs.iter().map(|row| cells(row).into_iter().map(cell).collect()).collect();
        let snapshot = TableSnapshot { columns, rows, create: String::new() };
        let comparison = Comparison { table: "d.t", ts: Ts::new(7) };
        let found = comparison.differences(Some(&content), Some(&snapshot));
        let lines: Vec<String> = found.iter().map(Difference::to_string).collect();
        assert_eq!(lines, expect);
    }

    #[test]
    fn rows_in_another_order_are_equal() {
        check(Some(vec![0]), &["1 a", "2 b"], &["2 b", "1 a"], &[]);
        check(None, &["1 a", "1 a", "2 NULL"], &["1 a", "2 NULL", "1 a"], &[]);
    }

    #[test]
    fn a_cell_that_differs_is_named_by_key_and_column() {
        let line = "d.t at 7, key \"1\", column v: ours \"a\", TiDB's NULL";
        check(Some(vec![0]), &["1 a"], &["1 NULL"], &[line]);
    }

    #[test]
    fn missing_and_surplus_rows_are_named() {
        let missing = "d.t at 7, key \"2\", column *: ours no row, TiDB's one row";
        let surplus = "d.t at 7, key \"3\", column *: ours one row, TiDB's no row";
        check(Some(vec![0]), &["1 a", "3 c"], &["1 a", "2 b"], &[missing, surplus]);
        let repeated = "d.t at 7, key \"1\"|\"a\", column *: ours 2 equal rows, TiDB's one row";
        check(None, &["1 a", "1 a"], &["1 a"], &[repeated]);
    }

    #[test]
    fn tables_and_columns_that_differ_are_one_line_each() {
        let comparison = Comparison { table: "d.t", ts: Ts::new(7) };
        let content = |columns: &[&str]| Content {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            key: None,
            rows: Vec::new(),
        };
        let snapshot = TableSnapshot { columns: vec!["a".into()], rows: Vec::new(), create: String::new() };
        let line = |ours: Option<&Content>, tidbs| {
            let found = comparison.differences(ours, tidbs);
            found.iter().map(Difference::to_string).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            line(None, Some(&snapshot)),
            "d.t at 7, key *, column *: ours there is no such table, TiDB's it exists"
        );
        assert_eq!(
            line(Some(&content(&["a"])), None),
            "d.t at 7, key *, column *: ours the table exists, TiDB's it does not"
        );
        assert_eq!(
            line(Some(&content(&["b", "a"])), Some(&snapshot)),
            "d.t at 7, key *, column *: ours b, a, TiDB's a"
        );
    }
}
