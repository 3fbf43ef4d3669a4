//! Manifests, indexes and configurations: the fields Doppel reads, bounded and checked.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use doppel_image::ImageConfig;
use serde::{Deserialize, Serialize};

use crate::{Digest, Error, Result};

/// Most bytes of a manifest, an index or a configuration, as registries limit them.
pub(crate) const DOCUMENT_MAX: u64 = 4 << 20;
/// Most layers of an image (Docker makes at most 127).
const LAYERS_MAX: usize = 512;
/// Most bytes of what is kept of a configuration.
const CONFIG_MAX: usize = 1 << 20;

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// What a client accepts as manifest.
pub(crate) const ACCEPT: [&str; 4] = [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST];

/// Points to a blob or a manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<DescriptorPlatform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DescriptorPlatform {
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) variant: String,
}

/// An image manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) media_type: String,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// What a manifest request can be answered with.
#[derive(Debug)]
pub(crate) enum Document {
    Image(Manifest),
    Index(Vec<Descriptor>),
}

/// Both kinds at once, to see which it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Either {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

impl Document {
    /// Parses a manifest or an index. `what` is for messages.
    pub(crate) fn parse(bytes: &[u8], what: &str) -> Result<Self> {
        let bad = |why: String| Error::invalid(format!("the manifest of {what}"), why);
        if bytes.len() as u64 > DOCUMENT_MAX {
            return Err(bad(format!("it is longer than {DOCUMENT_MAX} bytes")));
        }
        let either: Either = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        if either.schema_version != 2 {
            return Err(bad(format!("its schema version is {}; only 2 is read", either.schema_version)));
        }
        let Either { schema_version, media_type, config, layers, manifests } = either;
        // A document that is both means one thing here and another there (CVE-2021-41190).
        match (config, layers, manifests) {
            (Some(config), Some(layers), None) if !matches!(media_type.as_str(), OCI_INDEX | DOCKER_LIST) => {
                let manifest = Manifest { schema_version, media_type, config, layers };
                manifest.check(what)?;
                Ok(Self::Image(manifest))
            }
            (None, None, Some(all)) if !matches!(media_type.as_str(), OCI_MANIFEST | DOCKER_MANIFEST) => {
                Ok(Self::Index(all))
            }
            _ => Err(bad("it is neither an image nor an index, or it is both".into())),
        }
    }
}

impl Manifest {
    fn check(&self, what: &str) -> Result<()> {
        let bad = |why: String| Err(Error::invalid(format!("the manifest of {what}"), why));
        if self.layers.len() > LAYERS_MAX {
            return bad(format!("it has {} layers; {LAYERS_MAX} are allowed", self.layers.len()));
        }
        if self.config.size > DOCUMENT_MAX {
            return bad(format!("its configuration has {} bytes", self.config.size));
        }
        for layer in &self.layers {
            let kind = layer.media_type.as_str();
            if kind.contains("foreign") || kind.contains("nondistributable") {
                return bad("it has layers that must not be distributed".into());
            }
            let tar = kind.is_empty() || kind.contains(".tar");
            if !tar || kind.ends_with("+encrypted") {
                return bad(format!(
                    "a layer is of type {:?}, which is no file system",
                    crate::error::printable(kind)
                ));
            }
        }
        Ok(())
    }

    /// Its media type, for a registry.
    pub(crate) fn media_type(&self) -> &str {
        if self.media_type.is_empty() { OCI_MANIFEST } else { &self.media_type }
    }

    /// The configuration and the layers.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}

/// An image configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) config: Option<ImageConfig>,
    pub(crate) rootfs: RootFs,
}

/// The digests of the layers, decompressed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RootFs {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) diff_ids: Vec<Digest>,
}

impl Config {
    /// Parses the configuration of an image with `layers` layers.
    pub(crate) fn parse(bytes: &[u8], layers: usize, what: &str) -> Result<Self> {
        let bad = |why: String| Error::invalid(format!("the configuration of {what}"), why);
        let config: Self = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        let found = config.rootfs.diff_ids.len();
        if found != layers {
            return Err(bad(format!("it is of {found} layers, but the manifest has {layers}")));
        }
        let kept = serde_json::to_string(&config.config).map_or(usize::MAX, |text| text.len());
        if kept > CONFIG_MAX {
            return Err(bad("it is unreasonably large".into()));
        }
        Ok(config)
    }
}

/// Operating system, architecture and variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// As Go calls it: `amd64`, `arm64`.
    pub architecture: String,
    /// As in `v8`; empty for any.
    pub variant: String,
}

impl Default for Platform {
    fn default() -> Self {
        Self { os: "linux".into(), architecture: "amd64".into(), variant: String::new() }
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let good =
            |p: &&str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !parts.iter().all(good) {
            return Err(format!("{text:?} is no platform: OS/ARCHITECTURE[/VARIANT] as in linux/amd64"));
        }
        let name = |a: &str| match a {
            "x86_64" | "x86-64" => "amd64".to_owned(),
            "aarch64" => "arm64".to_owned(),
            other => other.to_owned(),
        };
        match parts[..] {
            [architecture] => Ok(Self { architecture: name(architecture), ..Self::default() }),
            [os, architecture] => {
                Ok(Self { os: os.into(), architecture: name(architecture), variant: String::new() })
            }
            [os, architecture, variant] => {
                Ok(Self { os: os.into(), architecture: name(architecture), variant: variant.into() })
            }
            _ => Err(format!("{text:?} is no platform: OS/ARCHITECTURE[/VARIANT] as in linux/amd64")),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if self.variant.is_empty() { Ok(()) } else { write!(f, "/{}", self.variant) }
    }
}

impl Platform {
    /// Whether an image of this operating system, architecture and variant will do. What is not said fits.
    pub(crate) fn fits(&self, os: &str, architecture: &str, variant: &str) -> bool {
        let same = |wanted: &str, found: &str| wanted.is_empty() || found.is_empty() || wanted == found;
        same(&self.os, os) && same(&self.architecture, architecture) && same(&self.variant, variant)
    }

    /// The entry of an index for this platform: the first that says so, as in Docker.
    pub(crate) fn choose<'a>(&self, index: &'a [Descriptor], what: &str) -> Result<&'a Descriptor> {
        let exact = |d: &&Descriptor| {
            d.platform.as_ref().is_some_and(|p| {
                !p.os.is_empty()
                    && !p.architecture.is_empty()
                    && self.fits(&p.os, &p.architecture, &p.variant)
            })
        };
        let silent = |d: &&Descriptor| d.platform.is_none();
        index.iter().find(exact).or_else(|| index.iter().find(silent)).ok_or_else(|| {
            let all = index.iter().filter_map(|d| d.platform.as_ref());
            let names: Vec<_> = all
                .map(|p| Self {
                    os: p.os.clone(),
                    architecture: p.architecture.clone(),
                    variant: p.variant.clone(),
                })
                .map(|p| crate::error::printable(&p.to_string()))
                .take(30)
                .collect();
            Error::Platform { what: what.into(), platform: self.to_string(), found: names.join(", ") }
        })
    }
}

#[cfg(test)]
mod tests;
