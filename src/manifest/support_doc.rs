//! `docs/manifest-support.md`, written from the table of fields.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use super::fields::{Field, Lit, Object, POD, RESOURCE_NAMES, Support};

const HEAD: &str = "# Which fields of a Pod podling honours

This page is generated from the table that podling itself reads manifests by; a test keeps it fresh
(`UPDATE_DOCS=1 cargo test --lib manifest` writes it anew). Each field of the Kubernetes 1.37 Pod API is one of

- **honoured**: it has the effect that the Pod API gives it;
- **partly**: it has the effect that one node can give it, and a warning says what that is;
- **warned**: it only means something in a cluster, the pod runs without it, and a warning says so;
- **refused**: the pod would do something else without it, so the manifest is refused, by name.

A field that is left out, null, or an empty list is never warned about nor refused, and neither is a value that
equals the API's default. Fields that the API does not have are warned about, with what was probably meant;
with `strict: true` they are refused.

";

/// The page, as Markdown.
pub fn support_table_markdown() -> String {
    let mut page = Page { out: HEAD.to_owned(), below: BTreeMap::new(), places: BTreeMap::new() };
    page.find_places(&POD, "");
    let mut order = Vec::new();
    reach(&POD, &mut HashSet::new(), &mut order);
    for object in order {
        page.object(object);
    }
    page.resources();
    page.gated();
    page.out
}

/// Objects that can be reached by honoured fields, in the order in which a reader meets them.
fn reach(object: &'static Object, seen: &mut HashSet<&'static str>, order: &mut Vec<&'static Object>) {
    if !seen.insert(object.name) {
        return;
    }
    order.push(object);
    for field in object.fields.iter().filter(|field| is_open(field)) {
        if let Some(inner) = field.object() {
            reach(inner, seen, order);
        }
    }
}

/// Whether podling looks below this field.
fn is_open(field: &Field) -> bool {
    matches!(field.support, Support::Honoured | Support::Partly(_))
}

struct Page {
    out: String,
    /// Paths below fields that are not honoured, by the path of that field.
    below: BTreeMap<String, Vec<String>>,
    /// Where each object stands.
    places: BTreeMap<&'static str, Vec<String>>,
}

impl Page {
    fn find_places(&mut self, object: &'static Object, path: &str) {
        self.places.entry(object.name).or_default().push(path.to_owned());
        for field in object.fields {
            let Some(inner) = field.object() else { continue };
            let path = join(path, field);
            if is_open(field) {
                self.find_places(inner, &path);
            } else {
                let mut names = Vec::new();
                list_below(inner, "", &mut names);
                self.below.insert(path, names);
            }
        }
    }

    fn object(&mut self, object: &'static Object) {
        let places = self.places.get(object.name).cloned().unwrap_or_default();
        let places: Vec<String> = places.iter().filter(|p| !p.is_empty()).map(|p| format!("`{p}`")).collect();
        self.line(&format!("## {}\n", object.name));
        if !places.is_empty() {
            self.line(&format!("At {}.\n", places.join(", ")));
        }
        self.line("| field | | remark |\n|---|---|---|");
        for field in object.fields {
            let (word, why) = words(field.support);
            let mut remarks: Vec<String> =
                [why, field.note].iter().filter(|t| !t.is_empty()).map(|t| (*t).to_owned()).collect();
            remarks.extend(field.except.iter().map(|(lit, support)| exception(lit, *support)));
            self.line(&format!("| `{}` | {word} | {} |", field.name, remarks.join("; ")));
        }
        self.line("");
    }

    fn resources(&mut self) {
        self.line("## Resource names\n\nUnder `limits` and `requests`; `*` stands for the rest of a name.\n");
        self.line("| resource | | remark |\n|---|---|---|");
        for (name, support) in RESOURCE_NAMES {
            let (word, why) = words(*support);
            self.line(&format!("| `{name}` | {word} | {why} |"));
        }
        self.line("");
    }

    fn gated(&mut self) {
        self.line("## Fields below those\n");
        self.line(
            "What stands below a field that is warned about or refused shares its fate. Types and names \
            are checked all the same.\n",
        );
        let below = std::mem::take(&mut self.below);
        for (path, names) in below {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            self.line(&format!("- `{path}`: {}", names.join(", ")));
        }
    }

    fn line(&mut self, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "{text}");
    }
}

fn join(path: &str, field: &Field) -> String {
    let end = if matches!(field.shape, super::fields::Shape::Objects(_)) { "[]" } else { "" };
    if path.is_empty() { format!("{}{end}", field.name) } else { format!("{path}.{}{end}", field.name) }
}

fn list_below(object: &'static Object, path: &str, names: &mut Vec<String>) {
    for field in object.fields {
        let path = join(path, field);
        match field.object() {
            Some(inner) => list_below(inner, &path, names),
            None => names.push(path),
        }
    }
}

fn words(support: Support) -> (&'static str, &'static str) {
    match support {
        Support::Honoured => ("honoured", ""),
        Support::Partly(what) => ("partly", what),
        Support::Warned(why) => ("warned", why),
        Support::Refused(why) => ("refused", why),
    }
}

fn exception(lit: &Lit, support: Support) -> String {
    let value = match lit {
        Lit::Bool(value) => format!("`{value}`"),
        Lit::Text("") => "`\"\"`".to_owned(),
        Lit::Text(value) => format!("`{value}`"),
        Lit::Empty => "`{}`".to_owned(),
        Lit::Optional => "`optional: true`".to_owned(),
    };
    match words(support) {
        (word, "") => format!("{value} is {word}"),
        (word, why) => format!("{value} is {word}: {why}"),
    }
}
