// Package azstore registers azblob:// with objstore, for Azure Blob Storage.
// Import it for its effect.
//
//	azblob://container/prefix?storage_account=account
//
// Credentials come from the environment (AZURE_STORAGE_ACCOUNT,
// AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_CONNECTION_STRING
// or the default Azure identity). Parameters: storage_account, domain,
// protocol, localemu, as in gocloud.dev/blob/azureblob.
//
// Readers of tables know such objects as
// abfss://container@account.dfs.core.windows.net/prefix (W1).
//
// It owns the URL's meaning; it may touch the container under its prefix;
// tables and keys never enter it.
package azstore
