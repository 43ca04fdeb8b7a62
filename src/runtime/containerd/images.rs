//! Image records: names that point at a manifest or an index in the content store.

use std::collections::BTreeMap;

use containerd_client::services::v1::images_client::ImagesClient;
use containerd_client::services::v1::{
    CreateImageRequest, DeleteImageRequest, GetImageRequest, Image, ListImagesRequest, UpdateImageRequest,
};
use containerd_client::types::Descriptor;
use prost_types::FieldMask;
use tonic::transport::Channel;

use super::Containerd;
use super::client::{ANSWER_MAX, DEADLINE, DEADLINE_RUNTIME, Lane};
use super::error::RuntimeError;

/// A name and what it points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageRecord {
    /// Full name.
    pub(crate) name: String,
    /// Labels of the record.
    pub(crate) labels: BTreeMap<String, String>,
    /// Media type of the target.
    pub(crate) media_type: String,
    /// Digest of the target.
    pub(crate) digest: String,
    /// Size of the target itself (not of what it refers to), in bytes.
    pub(crate) size: u64,
}

impl From<Image> for ImageRecord {
    fn from(image: Image) -> Self {
        let target = image.target.unwrap_or_default();
        Self {
            name: image.name,
            labels: image.labels.into_iter().collect(),
            media_type: target.media_type,
            digest: target.digest,
            size: u64::try_from(target.size).unwrap_or(0),
        }
    }
}

impl From<&ImageRecord> for Image {
    fn from(record: &ImageRecord) -> Self {
        Self {
            name: record.name.clone(),
            labels: record.labels.clone().into_iter().collect(),
            target: Some(Descriptor {
                media_type: record.media_type.clone(),
                digest: record.digest.clone(),
                size: record.size as i64,
                annotations: Default::default(),
            }),
            ..Default::default()
        }
    }
}

impl Containerd {
    fn images_client(&self) -> ImagesClient<Channel> {
        ImagesClient::new(self.channel()).max_decoding_message_size(ANSWER_MAX)
    }

    pub(crate) async fn image_record(&self, name: &str) -> Result<Option<ImageRecord>, RuntimeError> {
        let mut client = self.images_client();
        let request = self.request(GetImageRequest { name: name.to_owned() });
        match self.call("get image", name, DEADLINE, Lane::Store, client.get(request)).await {
            Ok(answer) => Ok(answer.image.map(ImageRecord::from)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) async fn image_records(&self) -> Result<Vec<ImageRecord>, RuntimeError> {
        let mut client = self.images_client();
        let request = self.request(ListImagesRequest { filters: vec![] });
        let answer = self.call("list images", "", DEADLINE, Lane::Store, client.list(request)).await?;
        Ok(answer.images.into_iter().map(ImageRecord::from).collect())
    }

    /// Makes `record`, or points the existing one at the new target and adds the labels.
    pub(crate) async fn put_image_record(&self, record: &ImageRecord) -> Result<(), RuntimeError> {
        let mut client = self.images_client();
        let name = &record.name;
        let request =
            self.request(CreateImageRequest { image: Some(record.into()), source_date_epoch: None });
        match self.call("create image", name, DEADLINE, Lane::Store, client.create(request)).await {
            Err(e) if e.is_already_exists() => {}
            other => return other.map(|_| ()),
        }
        let paths =
            record.labels.keys().map(|k| format!("labels.{k}")).chain(["target".to_owned()]).collect();
        let request = self.request(UpdateImageRequest {
            image: Some(record.into()),
            update_mask: Some(FieldMask { paths }),
            source_date_epoch: None,
        });
        self.call("update image", name, DEADLINE, Lane::Store, client.update(request)).await?;
        Ok(())
    }

    /// Removes the record `name` and waits until what only it held is gone. False when there was none.
    pub(crate) async fn remove_image_record(&self, name: &str) -> Result<bool, RuntimeError> {
        let mut client = self.images_client();
        let request = self.request(DeleteImageRequest { name: name.to_owned(), sync: true, target: None });
        match self.call("remove image", name, DEADLINE_RUNTIME, Lane::Store, client.delete(request)).await {
            Ok(()) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }
}
