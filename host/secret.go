package host

// SecretNames is the one list of options whose values are secrets: a regular expression, for any
// case, of the names of such options in configuration files, on the kernel command line, in mount
// options and in the queries of URLs. Readers that show or store text of others hide such values.
//
// An X-Amz-Signature (AWS, "Authenticating Requests: Using Query Parameters") or a sig (Azure,
// "Create a service SAS") gives access to what its URL names, as a password does.
const SecretNames = `(?:[\w.-]*(?:passw|passphrase|secret|token|cred|signature|community|private)[\w.-]*|` +
	`[\w.-]*(?:pass|pwd?|keys?|psk|sig|auth)|(?:[\w.-]*_)?(?:pass|key)_[\w.-]*)`

var secretName = LazyRegexp(`(?i)^` + SecretNames + `$`)

// IsSecretName reports whether the value of an option of that name is a secret.
func IsSecretName(name string) bool {
	return secretName().MatchString(name)
}

// credentials matches the credentials of a URL: also of one whose password has an @ that is not
// percent-encoded.
var credentials = LazyRegexp(`(?s)://.*@`)

// WithoutCredentials returns a text that may repeat a word of the command line, without the
// credentials of a URL in it.
func WithoutCredentials(text string) string {
	return credentials().ReplaceAllString(text, "://***@")
}
