package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type imageJSON struct {
	ID          int64            `json:"id"`
	Type        string           `json:"type"`
	Status      string           `json:"status"`
	Name        *string          `json:"name"`
	Description string           `json:"description"`
	ImageSize   *float64         `json:"image_size"`
	DiskSize    float64          `json:"disk_size"`
	Created     timeJSON         `json:"created"`
	CreatedFrom *createdFromJSON `json:"created_from"`
	BoundTo     *int64           `json:"bound_to"`
	OSFlavor    string           `json:"os_flavor"`
	OSVersion   *string          `json:"os_version"`
	RapidDeploy bool             `json:"rapid_deploy"`
	Protection  protectionJSON   `json:"protection"`
	Deprecated  timeJSON         `json:"deprecated"`
	*imageDeprecationJSON
	Deleted      timeJSON          `json:"deleted"`
	Labels       map[string]string `json:"labels"`
	Architecture string            `json:"architecture"`
}

// imageDeprecationJSON is the field of the change ImageDeprecation.
type imageDeprecationJSON struct {
	Deprecation *deprecationJSON `json:"deprecation"`
}

type createdFromJSON struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// encodeImage shows a deprecation in both forms: clients from before ImageDeprecation read `deprecated`, newer ones
// `deprecation`.
func encodeImage(d Date, i *cloud.Image) imageJSON {
	out := imageJSON{
		ID: i.ID, Type: i.Type, Status: i.Status, Name: nullable(i.Name), Description: i.Description,
		ImageSize: nullable(i.ImageSize), DiskSize: i.DiskSize, Created: timeJSON(i.Created),
		BoundTo: nullable(i.BoundTo), OSFlavor: i.OSFlavor, OSVersion: nullable(i.OSVersion),
		RapidDeploy: i.RapidDeploy, Protection: protectionJSON{i.DeleteProtection},
		Deprecated: deprecatedSince(i.Deprecation), Deleted: timeJSON(i.Deleted), Labels: i.Labels, Architecture: i.Architecture,
	}
	if i.CreatedFrom.ID != 0 {
		out.CreatedFrom = &createdFromJSON{i.CreatedFrom.ID, i.CreatedFromName}
	}
	if !d.Before(ImageDeprecation) {
		out.imageDeprecationJSON = &imageDeprecationJSON{encodeDeprecation(i.Deprecation)}
	}
	return out
}

// images are a project's snapshots and backups. For the catalogue's images, see systemImages.
var images = &resource[*cloud.Image]{
	singular: "image", plural: "images", kind: cloud.KindImage,
	table:  func(st *cloud.State) *store.Table[*cloud.Image] { return &st.Images },
	encode: func(d Date, _ *cloud.State, i *cloud.Image) any { return encodeImage(d, i) },
	sort:   orders[*cloud.Image]("id", "name", "created"),
	filter: imageFilter,
}

// systemImages encodes the catalogue's images.
var systemImages = &staticList[cloud.Image]{
	singular: "image", plural: "images",
	items:  func(c *cloud.Catalogue) []*cloud.Image { return c.Images },
	id:     func(i *cloud.Image) int64 { return i.ID },
	name:   func(i *cloud.Image) string { return i.Name },
	encode: func(d Date, i *cloud.Image) any { return encodeImage(d, i) },
}

// imageFilter reads type, status, architecture and bound_to.
func imageFilter(q url.Values) (func(*cloud.Image) bool, error) {
	types, err := oneOf(q, "type", "system", "app", "snapshot", "backup")
	if err != nil {
		return nil, err
	}
	statuses, err := oneOf(q, "status", "available", "creating", "unavailable")
	if err != nil {
		return nil, err
	}
	architectures, err := oneOf(q, "architecture", "x86", "arm")
	if err != nil {
		return nil, err
	}
	for _, s := range q["bound_to"] {
		if _, ok := cloud.ParseID(s); !ok {
			return nil, cloud.ErrField("bound_to", "must be the id of a server")
		}
	}
	bound, _ := oneOf(q, "bound_to") // any value is allowed
	return func(i *cloud.Image) bool {
		return types(i.Type) && statuses(i.Status) && architectures(i.Architecture) &&
			bound(strconv.FormatInt(i.BoundTo, 10))
	}, nil
}

// shownImage is an image in a list, with its JSON.
type shownImage struct {
	image *cloud.Image
	json  func() []byte
}

// listImages answers GET /images with one list of the catalogue's and the project's images.
func listImages(r *Request) (Response, error) {
	q := r.Query()
	p, keys, err := pageAndOrder(q, MaxPerPage, images.sort)
	if err != nil {
		return Response{}, err
	}
	withDeprecated, err := boolParam(q, "include_deprecated")
	if err != nil {
		return Response{}, err
	}
	st := r.Project.View()
	f, err := images.filters(st, q)
	if err != nil {
		return Response{}, err
	}
	now := r.api.cloud.Now()
	var found []shownImage
	for _, i := range st.Catalogue.Images {
		if f.match(i) && !i.Deprecation.Retired(now) && (withDeprecated || i.Deprecation == nil || now.Before(i.Deprecation.Announced)) {
			found = append(found, shownImage{i, func() []byte { return systemImages.member(r, st.Catalogue, i) }})
		}
	}
	for e := range st.Images.Entries() {
		if f.match(e.Value) {
			found = append(found, shownImage{e.Value, func() []byte { return images.json(r, st, e) }})
		}
	}
	keys = append(keys, sortKey{field: "id"})
	slices.SortFunc(found, func(a, b shownImage) int { return compareBy(a.image, b.image, keys, images.sort) })
	return listResponse(r, "images", p, len(found), func(i int) []byte { return found[i].json() }), nil
}

func getImage(r *Request, id int64) (Response, error) {
	if _, own := r.Project.View().Images.Get(id); own {
		return images.get(r)
	}
	return systemImages.get(r)
}

func updateImage(r *Request, id int64, body struct {
	Description *string           `json:"description"`
	Type        string            `json:"type" check:"oneof=snapshot"`
	Labels      map[string]string `json:"labels"`
}) (Response, error) {
	st, err := r.Project.UpdateImage(id, cloud.UpdateImage{
		Description: body.Description, ToSnapshot: body.Type == cloud.ImageSnapshot, Labels: body.Labels,
	})
	return images.updated(r, id, st, err)
}

// listImageActions answers with an image's actions. The list is empty for an image of the catalogue.
func listImageActions(own handler) handler {
	return withID(cloud.KindImage, func(r *Request, id int64) (Response, error) {
		st := r.Project.View()
		if _, ok := st.Catalogue.Image(id); ok {
			return listActions(r, st, actionsOf(st, cloud.Ref{Kind: cloud.KindImage, ID: id}))
		}
		return own(r)
	})
}

func imageRoutes() []Route {
	actions := actionRoutesOf(images)
	for i := range actions {
		if actions[i].OperationID == "list_image_actions" {
			actions[i].Handle = listImageActions(actions[i].Handle)
		}
	}
	return append(actions, []Route{
		{http.MethodGet, "/images", "list_images", listImages},
		{http.MethodGet, "/images/{id}", "get_image", withID(cloud.KindImage, getImage)},
		{http.MethodPut, "/images/{id}", "update_image", withIDAndBody(cloud.KindImage, updateImage)},
		{http.MethodDelete, "/images/{id}", "delete_image", images.remove(cloud.Project.DeleteImage)},
		images.action("change_protection", changeProtection(cloud.KindImage, cloud.Project.ChangeImageProtection)),
	}...)
}
