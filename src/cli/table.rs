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
        for row in rows {
            for (i, cell) in row.iter().enumerate() {
                let width = (cell.chars().count() + GAP).max(NARROWEST);
                match self.widths.get_mut(i) {
                    Some(known) => *known = width.max(*known),
                    None => self.widths.push(width),
                }
            }
        }
        let mut out = String::new();
        for row in rows {
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
}
