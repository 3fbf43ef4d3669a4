use super::*;

const PASSWD: &[u8] =
    b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/var/www:/bin/false\nodd:x:y:1::/:\n1000:x:7:8::/n:\n";
const GROUP: &[u8] = b"root:x:0:\nwheel:x:60:a,web\nstaff:x:50:web\nother:x:70:webmaster,\nodd:x:y:web\n";

fn files(path: &str) -> Option<Vec<u8>> {
    match path {
        "/etc/passwd" => Some(PASSWD.to_vec()),
        "/etc/group" => Some(GROUP.to_vec()),
        other => panic!("reads {other}"),
    }
}

fn words<T: for<'a> From<&'a str>>(text: &str) -> Vec<T> {
    text.split_whitespace().map(T::from).collect()
}

#[test]
fn commands() {
    let config = ImageConfig { entrypoint: words("/e --x"), cmd: words("a b"), ..ImageConfig::default() };
    let argv = |entrypoint: Option<&str>, command: &str| {
        let wanted = LaunchOptions {
            entrypoint: entrypoint.map(Into::into),
            command: words(command),
            ..LaunchOptions::default()
        };
        launch(&config, wanted, files).unwrap().argv.join(std::ffi::OsStr::new(" "))
    };
    assert_eq!(argv(None, ""), "/e --x a b");
    assert_eq!(argv(None, "c"), "/e --x c");
    assert_eq!(argv(Some("/f"), ""), "/f", "the image's command goes with its entry point");
    assert_eq!(argv(Some("/f"), "c d"), "/f c d");
    assert_eq!(argv(Some(""), "c d"), "c d");
    let none = launch(&ImageConfig::default(), LaunchOptions::default(), files).unwrap();
    assert_eq!((none.argv.len(), none.cwd.to_str().unwrap(), none.user.home.as_str()), (0, "/", "/root"));
}

#[test]
fn users() {
    let config = ImageConfig { user: "web".into(), working_dir: "/srv".into(), ..ImageConfig::default() };
    let who = |user: Option<&str>| {
        let wanted = LaunchOptions { user: user.map(Into::into), ..LaunchOptions::default() };
        launch(&config, wanted, files).map(|l| (l.user.uid, l.user.gid, l.user.home))
    };
    assert_eq!(who(None), Ok((33, 34, "/var/www".into())));
    assert_eq!(who(Some("33")), Ok((33, 34, "/var/www".into())), "a number takes the group of its line");
    assert_eq!(who(Some("web:staff")), Ok((33, 50, "/var/www".into())));
    assert_eq!(who(Some("web:9")), Ok((33, 9, "/var/www".into())));
    assert_eq!(who(Some("4242")), Ok((4242, 0, "/".into())));
    assert_eq!(who(Some("1000")), Ok((7, 8, "/n".into())), "a name goes before a number");
    assert_eq!(who(Some("root")), Ok((0, 0, "/root".into())));
    let groups = |user: &str| {
        launch(&config, LaunchOptions { user: Some(user.into()), ..LaunchOptions::default() }, files)
            .unwrap()
            .user
            .groups
    };
    assert_eq!((groups("web"), groups("33"), groups("web:")), (vec![50, 60], vec![50, 60], vec![50, 60]));
    assert_eq!((groups("web:staff"), groups("4242"), groups("root")), (vec![], vec![], vec![]));
    for bad in ["nobody", "web:nogroup", "odd", "-1", "4294967295"] {
        assert!(who(Some(bad)).is_err(), "{bad}");
    }
    assert_eq!(launch(&config, LaunchOptions::default(), files).unwrap().cwd, "/srv");
    let wanted = LaunchOptions { workdir: Some("/x".into()), ..LaunchOptions::default() };
    assert_eq!(launch(&config, wanted, files).unwrap().cwd, "/x");
}

#[test]
fn docker_json() {
    let text = r#"{"User":null,"Env":["A=1"],"Cmd":null,"Entrypoint":["/x"],"ExposedPorts":{"80/tcp":{}},
        "Labels":null,"Healthcheck":{"Test":["CMD","x"],"Interval":5},"OnBuild":null,"StopSignal":"SIGINT"}"#;
    let config: ImageConfig = serde_json::from_str(text).unwrap();
    assert_eq!((config.env.len(), config.entrypoint.len(), config.exposed_ports.len()), (1, 1, 1));
    assert_eq!(config.healthcheck.as_ref().unwrap().interval, 5);
    let again: ImageConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
    assert_eq!(again, config);
    assert!(serde_json::from_str::<ImageConfig>(r#"{"Env":"x"}"#).is_err());
}
