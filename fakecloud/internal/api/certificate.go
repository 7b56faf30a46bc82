package api

import (
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type certificateJSON struct {
	ID             int64                  `json:"id"`
	Name           string                 `json:"name"`
	Labels         map[string]string      `json:"labels"`
	Type           string                 `json:"type"`
	Certificate    *string                `json:"certificate"`
	Created        timeJSON               `json:"created"`
	NotValidBefore timeJSON               `json:"not_valid_before"`
	NotValidAfter  timeJSON               `json:"not_valid_after"`
	DomainNames    []string               `json:"domain_names"`
	Fingerprint    *string                `json:"fingerprint"`
	Status         *certificateStatusJSON `json:"status"`
	UsedBy         []refJSON              `json:"used_by"`
}

type certificateStatusJSON struct {
	Issuance string           `json:"issuance"`
	Renewal  string           `json:"renewal"`
	Error    *actionErrorJSON `json:"error"`
}

func encodeCertificate(c *cloud.Certificate) certificateJSON {
	out := certificateJSON{
		ID: c.ID, Name: c.Name, Labels: c.Labels, Type: c.Type, Certificate: nullable(c.Certificate),
		Created: timeJSON(c.Created), NotValidBefore: timeJSON(c.NotValidBefore), NotValidAfter: timeJSON(c.NotValidAfter),
		DomainNames: nonNil(c.DomainNames), Fingerprint: nullable(c.Fingerprint),
		UsedBy: each(c.UsedBy, func(r cloud.Ref) refJSON { return refJSON{r.ID, r.Kind} }),
	}
	if c.Type == cloud.CertificateManaged {
		out.Status = &certificateStatusJSON{Issuance: c.Issuance, Renewal: c.Renewal}
		if c.ErrorCode != "" {
			out.Status.Error = &actionErrorJSON{c.ErrorCode, c.ErrorText}
		}
	}
	return out
}

var certificates = &resource[*cloud.Certificate]{
	singular: "certificate", plural: "certificates", kind: cloud.KindCertificate,
	table:  func(st *cloud.State) *store.Table[*cloud.Certificate] { return &st.Certificates },
	encode: func(_ Date, _ *cloud.State, c *cloud.Certificate) any { return encodeCertificate(c) },
	sort:   orders[*cloud.Certificate]("id", "name", "created"),
	filter: filterBy("type", func(c *cloud.Certificate) string { return c.Type }, cloud.CertificateUploaded, cloud.CertificateManaged),
}

func certificateRoutes() []Route {
	return slices.Concat(certificates.routes(withBody(createCertificate), certificates.update(cloud.Project.UpdateCertificate),
		certificates.remove(cloud.Project.DeleteCertificate),
	), []Route{
		certificates.action("retry", startedOn(cloud.KindCertificate, cloud.Project.RetryCertificate)),
	}, actionRoutesOf(certificates))
}

// createCertificate reads the fields that the type needs and ignores those of the other type.
func createCertificate(r *Request, body struct {
	Name        string            `json:"name" check:"required,notblank"`
	Labels      map[string]string `json:"labels"`
	Type        string            `json:"type" check:"oneof=uploaded|managed"`
	Certificate *string           `json:"certificate" check:"len=0:65536"`
	PrivateKey  *string           `json:"private_key" check:"len=0:65536"`
	DomainNames []string          `json:"domain_names"`
}) (Response, error) {
	if body.Type == cloud.CertificateManaged {
		c, action, st, err := r.Project.CreateManagedCertificate(cloud.CreateManagedCertificate{
			Name: body.Name, Labels: body.Labels, DomainNames: body.DomainNames,
		})
		return certificates.created(r, c, st, err, actionPart(st, action))
	}
	var missing []cloud.FieldError
	if body.Certificate == nil {
		missing = append(missing, cloud.FieldError{Name: "certificate", Messages: []string{"is required"}})
	}
	if body.PrivateKey == nil {
		missing = append(missing, cloud.FieldError{Name: "private_key", Messages: []string{"is required"}})
	}
	if missing != nil {
		return Response{}, cloud.ErrInvalidInput(missing...)
	}
	c, st, err := r.Project.UploadCertificate(cloud.UploadCertificate{
		Name: body.Name, Labels: body.Labels, Certificate: *body.Certificate, PrivateKey: *body.PrivateKey,
	})
	return certificates.created(r, c, st, err, Part{Key: "action", JSON: []byte("null")})
}
