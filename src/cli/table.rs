//! Tables as kubectl lays them out: columns three blanks apart, the last one ragged.

/// Blanks between columns.
const GAP: usize = 3;
/// Narrowest column, gap included.
const NARROWEST: usize = 6;

/// Lays rows out; keeps its widths, so that rows which come later line up with those before.
#[derive(Debug, Default)]
pub(super) struct Table {
    widths: Vec<usize>,
}

impl Table {
    /// The rows as text, a line each.
    pub(super) fn render(&mut self, rows: &[Vec<String>]) -> String {
        let rows: Vec<Vec<String>> = rows.iter().map(|r| r.iter().map(|c| one_line(c)).collect()).collect();
        for row in &rows {
            for (i, cell) in row.iter().enumerate() {
                let width = (cell.chars().count() + GAP).max(NARROWEST);
                match self.widths.get_mut(i) {
                    Some(known) => *known = width.max(*known),
                    None => self.widths.push(width),
                }
            }
        }
        let mut out = String::new();
        for row in &rows {
            for (i, cell) in row.iter().enumerate() {
                out.push_str(cell);
                if i + 1 < row.len() {
                    let pad = self.widths[i] - cell.chars().count();
                    out.extend(std::iter::repeat_n(' ', pad));
                }
            }
            out.push('\n');
        }
        out
    }
}

/// A cell as it fits into a row, as kubectl cuts it: up to the end of its first line.
fn one_line(cell: &str) -> String {
    match cell.find(['\n', '\r', '\x0c']) {
        Some(end) => plain(&cell[..end]) + "...",
        None => plain(cell),
    }
}

/// Text that a container may have had its hands in, fit for a terminal: control characters in caret notation.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\x7f' => out.push_str("^?"),
            '\0'..='\x1f' => out.extend(['^', char::from(c as u8 + b'@')]),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A row of words.
pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_three_blanks_apart_and_later_rows_keep_them() {
        let mut table = Table::default();
        assert_eq!(
            table.render(&[row(["NAME", "READY", "AGE"]), row(["a-longer-name", "1/1", "5s"])]),
            "NAME            READY   AGE\na-longer-name   1/1     5s\n"
        );
        assert_eq!(table.render(&[row(["b", "0/1", "12m"])]), "b               0/1     12m\n");
    }

    #[test]
    fn what_a_container_says_moves_no_cursor_and_breaks_no_row() {
        let mut table = Table::default();
        let rows = [row(["MESSAGE", "X"]), row(["one\ntwo", "\x1b[2J\x7f\u{9b}1mä"])];
        assert_eq!(table.render(&rows), "MESSAGE   X\none...    ^[[2J^?\u{fffd}1mä\n");
        assert_eq!(plain("a\tb\r\nc\x07"), "a\tb^M\nc^G");
    }
}
