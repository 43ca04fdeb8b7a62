//! Getting past a registry's door: challenges and tokens, as docker's registries use them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::{HeaderMap, header};
use serde::Deserialize;

use super::secrets::Credential;

/// What a registry wants to see (`WWW-Authenticate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token from elsewhere.
    Bearer {
        /// Where from.
        realm: String,
        /// For whom.
        service: Option<String>,
        /// For what, when the registry says.
        scope: Option<String>,
    },
}

/// The challenges of an answer, the best first.
pub(super) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let values = headers.get_all(header::WWW_AUTHENTICATE);
    let mut all: Vec<_> = values.iter().filter_map(|v| v.to_str().ok()).flat_map(parse).collect();
    all.sort_by_key(|c| *c == Challenge::Basic);
    all
}

fn parse(value: &str) -> Option<Challenge> {
    let (scheme, rest) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    for (key, value) in parameters(rest) {
        match key.as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
    }
    Some(Challenge::Bearer { realm: realm?, service, scope })
}

/// `key="value, with commas",key=value`.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = text.trim_start();
    while let Some((key, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(',').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        all.push((key.trim().to_ascii_lowercase(), value));
        rest = after.trim_start_matches([',', ' ']);
    }
    all
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

/// `Authorization` for name and password; none for anybody without them.
pub(super) fn basic(credential: &Credential) -> Option<String> {
    let text = format!("{}:{}", credential.username, credential.password);
    (!credential.username.is_empty()).then(|| format!("Basic {}", STANDARD.encode(text)))
}

/// A request for a token: an address to GET, or to POST a form to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenRequest {
    pub(super) url: String,
    pub(super) form: Option<String>,
    pub(super) authorization: Option<String>,
}

impl TokenRequest {
    /// By name and password (or nothing) with GET; by an identity token, which is OAuth2's refresh token,
    /// with POST.
    pub(super) fn new(
        realm: &str,
        service: Option<&str>,
        scope: &str,
        credential: Option<&Credential>,
    ) -> Self {
        let mut fields = vec![("scope", scope)];
        fields.extend(service.map(|s| ("service", s)));
        let identity = credential.map(|c| c.identity_token.as_str()).filter(|t| !t.is_empty());
        if let Some(token) = identity {
            fields.extend([
                ("grant_type", "refresh_token"),
                ("client_id", "podling"),
                ("refresh_token", token),
            ]);
            return Self { url: realm.to_owned(), form: Some(encoded(&fields)), authorization: None };
        }
        let joint = if realm.contains('?') { '&' } else { '?' };
        let url = format!("{realm}{joint}{}", encoded(&fields));
        Self { url, form: None, authorization: credential.and_then(basic) }
    }

    /// Whether it shows anything that must not be seen.
    pub(super) fn secret(&self) -> bool {
        self.form.is_some() || self.authorization.is_some()
    }
}

fn encoded(fields: &[(&str, &str)]) -> String {
    let one = |(key, value): &(&str, &str)| format!("{key}={}", percent_encoded(value));
    fields.iter().map(one).collect::<Vec<_>>().join("&")
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}

/// The answer to a [`TokenRequest`].
#[derive(Deserialize)]
pub(super) struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl TokenAnswer {
    /// `Authorization` by this token; none when the answer has none.
    pub(super) fn authorization(self) -> Option<String> {
        let token = self.token.filter(|t| !t.is_empty()).or(self.access_token).filter(|t| !t.is_empty())?;
        Some(format!("Bearer {token}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Vec<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::WWW_AUTHENTICATE, value.parse().unwrap());
        }
        challenges(&headers)
    }

    #[test]
    fn challenges_are_read_and_tokens_preferred() {
        let bearer =
            r#"Bearer realm="https://auth.io/token?x=1",service="reg.io",scope="repository:a/b:pull,push""#;
        let all = read(&[r#"Basic realm="r""#, bearer, "Negotiate"]);
        let expected = Challenge::Bearer {
            realm: "https://auth.io/token?x=1".into(),
            service: Some("reg.io".into()),
            scope: Some("repository:a/b:pull,push".into()),
        };
        assert_eq!(all, [expected, Challenge::Basic]);
        assert_eq!(read(&["Bearer service=x"]), []);
        let odd = read(&[r#"bearer realm="a\"b", service = plain"#]);
        let expected = Challenge::Bearer { realm: "a\"b".into(), service: Some("plain".into()), scope: None };
        assert_eq!(odd, [expected]);
    }

    #[test]
    fn tokens_are_asked_for_by_get_or_by_an_identity_token() {
        let me = Credential { username: "me".into(), password: "p".into(), ..Credential::default() };
        let request = TokenRequest::new("https://a/t", Some("s s"), "repository:x/y:pull", Some(&me));
        assert_eq!(request.url, "https://a/t?scope=repository%3Ax%2Fy%3Apull&service=s%20s");
        assert_eq!(request.authorization.as_deref(), Some("Basic bWU6cA=="));
        let identity = Credential { identity_token: "id&".into(), ..Credential::default() };
        let request = TokenRequest::new("https://a/t", None, "sc", Some(&identity));
        let form = "scope=sc&grant_type=refresh_token&client_id=podling&refresh_token=id%26";
        assert_eq!((request.url.as_str(), request.form.as_deref()), ("https://a/t", Some(form)));
        assert_eq!(TokenRequest::new("https://a/t?k=v", None, "sc", None).url, "https://a/t?k=v&scope=sc");
    }

    #[test]
    fn both_names_of_a_token_are_understood() {
        let of = |text: &str| serde_json::from_str::<TokenAnswer>(text).unwrap().authorization();
        assert_eq!(of(r#"{"token": "a", "expires_in": 60}"#).as_deref(), Some("Bearer a"));
        assert_eq!(of(r#"{"token": "", "access_token": "b"}"#).as_deref(), Some("Bearer b"));
        assert_eq!(of("{}"), None);
    }
}
