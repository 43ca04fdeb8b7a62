use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// A server that gives these answers, one a connection; and what it was asked.
async fn server(answers: Vec<String>) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = Vec::new();
            while !text.ends_with(b"\r\n\r\n") {
                text.push(stream.read_u8().await.unwrap());
            }
            let _ = tell.send(String::from_utf8(text).unwrap());
            let _ = stream.write_all(answer.replace("PORT", &port.to_string()).as_bytes()).await;
        }
    });
    (port, asked)
}

fn plain(port: u16, path: &str) -> HttpGet {
    HttpGet {
        tls: false,
        hosts: vec!["127.0.0.1".into()],
        port,
        path: path.into(),
        headers: Vec::new(),
        agent: "kube-probe/1.36",
    }
}

fn answer(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok")
}

#[tokio::test]
async fn a_request_has_the_headers_a_kubelet_sends() {
    let (port, mut asked) = server(vec![answer("200 OK")]).await;
    let got = get(&plain(port, "/healthz?full=1"), LIMIT).await.unwrap();
    assert_eq!(got, HttpAnswer { status: 200, elsewhere: None });
    let head = asked.recv().await.unwrap();
    assert!(head.starts_with("GET /healthz?full=1 HTTP/1.1\r\n"), "{head}");
    for line in [
        "User-Agent: kube-probe/1.36",
        "Accept: */*",
        "Connection: close",
        &format!("Host: 127.0.0.1:{port}"),
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    assert_eq!(head.lines().count(), 6, "{head}");
}

#[tokio::test]
async fn headers_of_the_manifest_replace_the_usual_ones_and_may_come_twice() {
    let (port, mut asked) = server(vec![answer("204 No Content")]).await;
    let mut request = plain(port, "/");
    let headers = [("host", "app.example"), ("User-Agent", "me"), ("Accept", ""), ("X-A", "1"), ("x-a", "2")];
    request.headers = headers.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    get(&request, LIMIT).await.unwrap();
    let head = asked.recv().await.unwrap();
    for line in ["Host: app.example", "User-Agent: me", "X-A: 1", "X-A: 2"] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    assert!(!head.contains("Accept"), "{head}");
    request.headers = vec![("X".into(), "a\nb".into())];
    assert!(matches!(get(&request, LIMIT).await, Err(HttpError::Header { .. })));
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let to = |place: &str| format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n");
    let (port, mut asked) =
        server(vec![to("there"), to("http://127.0.0.1:PORT/x/../final?q"), answer("503 Busy")]).await;
    let got = get(&plain(port, "/a/b"), LIMIT).await.unwrap();
    assert_eq!(got.status, 503);
    for line in ["GET /a/b HTTP/1.1", "GET /a/there HTTP/1.1", "GET /x/../final?q HTTP/1.1"] {
        assert_eq!(asked.recv().await.unwrap().lines().next(), Some(line));
    }
    let (port, _asked) = server(vec![to("http://elsewhere.example/login")]).await;
    let got = get(&plain(port, "/"), LIMIT).await.unwrap();
    assert_eq!(got, HttpAnswer { status: 302, elsewhere: Some("http://elsewhere.example:80/login".into()) });
    let (port, _asked) = server(vec![to("/round"); 11]).await;
    let e = get(&plain(port, "/"), LIMIT).await.unwrap_err();
    assert_eq!(e.to_string(), format!("Get \"http://127.0.0.1:{port}/round\": stopped after 10 redirects"));
}

#[tokio::test]
async fn a_long_body_is_not_read_to_its_end() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n";
    let (port, _asked) = server(vec![format!("{head}{}", "x".repeat(BODY_MAX))]).await;
    assert_eq!(get(&plain(port, "/"), LIMIT).await.unwrap().status, 200);
}

#[tokio::test]
async fn what_breaks_off_or_is_no_http_or_is_not_there_is_told_apart() {
    let (port, _asked) = server(vec!["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".into()]).await;
    assert!(matches!(get(&plain(port, "/"), LIMIT).await, Err(HttpError::Http { .. })));
    let (port, _asked) = server(vec!["hello\r\n".into()]).await;
    assert!(matches!(get(&plain(port, "/"), LIMIT).await, Err(HttpError::Http { .. })));
    // The server has given its one answer and is gone.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let e = get(&plain(port, "/a b"), LIMIT).await.unwrap_err();
    let url = format!("http://127.0.0.1:{port}/a%20b");
    assert_eq!(e.to_string(), format!("Get {url:?}: dial tcp 127.0.0.1:{port}: connect: connection refused"));
}

#[tokio::test]
async fn a_server_that_keeps_silent_costs_the_limit_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let e = get(&plain(port, "/"), Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(e.to_string(), format!("Get \"http://127.0.0.1:{port}/\": no answer within 0.05 s"));
}

#[tokio::test]
async fn the_next_host_is_asked_where_nobody_listens() {
    let (port, _asked) = server(vec![answer("200 OK")]).await;
    let request = HttpGet { hosts: vec!["127.9.9.9".into(), "127.0.0.1".into()], ..plain(port, "/") };
    assert_eq!(get(&request, LIMIT).await.unwrap().status, 200);
}

#[tokio::test]
async fn https_on_a_server_of_plain_http_is_recognised() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 16];
        let _ = stream.read(&mut hello).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.shutdown().await;
    });
    let e = get(&HttpGet { tls: true, ..plain(port, "/") }, LIMIT).await.unwrap_err();
    assert!(e.is_plain_http(), "{e}");
}

#[test]
fn paths_become_fit_for_a_request_line() {
    for (path, target) in [
        ("/", "/"),
        ("", "/"),
        ("healthz", "/healthz"),
        ("?a=b", "/?a=b"),
        ("/a b?c=d e", "/a%20b?c=d%20e"),
        ("/%41%zz%", "/%41%25zz%25"),
        ("/ü", "/%C3%BC"),
        ("/a#b", "/a"),
    ] {
        assert_eq!(request_target(path), target);
        assert!(target.parse::<Uri>().is_ok());
    }
}

#[test]
fn locations_are_read_as_a_browser_reads_them() {
    let here = Url { tls: true, host: "fd00::1".into(), port: 8443, path: "/a/b?x".into() };
    for (location, url) in [
        ("/c", "https://[fd00::1]:8443/c"),
        ("c?d", "https://[fd00::1]:8443/a/c?d"),
        ("../c", "https://[fd00::1]:8443/c"),
        ("./", "https://[fd00::1]:8443/a/"),
        ("?y", "https://[fd00::1]:8443/a/b?y"),
        ("//other/p", "https://other:443/p"),
        ("HTTP://other:81", "http://other:81/"),
        ("https://[fd00::1]:1/z", "https://[fd00::1]:1/z"),
    ] {
        assert_eq!(here.join(location).unwrap().to_string(), url, "{location}");
    }
    assert_eq!(here.join("http://a b/"), None);
}
