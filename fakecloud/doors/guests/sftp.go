package guests

import (
	"io"
	"io/fs"

	"github.com/pkg/sftp"
)

// transfer serves SFTP from a guest's disk, which has no links and no size.
type transfer struct{ *process }

// Close does nothing: the channel has to be open for the exit status.
func (transfer) Close() error { return nil }

func (t transfer) Read(b []byte) (int, error)  { return t.in.Read(b) }
func (t transfer) Write(b []byte) (int, error) { return t.out.Write(b) }

// sftp serves the client until it ends.
func (p *process) sftp() {
	t := transfer{p}
	handlers := sftp.Handlers{FileGet: t, FilePut: t, FileCmd: t, FileList: t}
	_ = sftp.NewRequestServer(t, handlers, sftp.WithStartDirectory(home)).Serve() // an error is the client's end
}

// note logs an operation, and returns its error.
func (t transfer) note(r *sftp.Request, err error) error {
	t.log("sftp", r.Method+" "+r.Filepath, map[bool]int{true: 1}[err != nil], false)
	return err
}

// Fileread implements sftp.FileReader.
func (t transfer) Fileread(r *sftp.Request) (io.ReaderAt, error) { return t.OpenFile(r) }

// Filewrite implements sftp.FileWriter.
func (t transfer) Filewrite(r *sftp.Request) (io.WriterAt, error) { return t.OpenFile(r) }

// OpenFile implements sftp.OpenFileWriter.
func (t transfer) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) {
	flags := r.Pflags()
	f, err := t.run.disk.open(r.Filepath, flags.Creat, flags.Trunc)
	return f, t.note(r, err)
}

// Filecmd implements sftp.FileCmder.
func (t transfer) Filecmd(r *sftp.Request) error {
	switch disk := t.run.disk; r.Method {
	case "Setstat":
		return disk.change(r.Filepath, func(_ string, f *file) error { return setstat(r, f) })
	case "Rename":
		return t.note(r, disk.rename(r.Filepath, r.Target))
	case "Mkdir":
		return t.note(r, disk.mkdir(r.Filepath, 0o755))
	case "Rmdir", "Remove":
		return t.note(r, disk.remove(r.Filepath))
	}
	return t.note(r, sftp.ErrSSHFxOpUnsupported)
}

func setstat(r *sftp.Request, f *file) error {
	flags, to := r.AttrFlags(), r.Attributes()
	if flags.Permissions {
		f.mode = f.mode.Type() | to.FileMode().Perm()
	}
	if flags.Size {
		return f.resize(int64(min(to.Size, maxDisk+1)))
	}
	return nil
}

// Filelist implements sftp.FileLister.
func (t transfer) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method == "List" {
		all, err := t.run.disk.list(r.Filepath)
		return lister(all), err
	}
	i, err := t.run.disk.stat(r.Filepath)
	return lister{i}, err
}

// lister implements sftp.ListerAt.
type lister []fs.FileInfo

// ListAt implements sftp.ListerAt.
func (l lister) ListAt(to []fs.FileInfo, at int64) (int, error) {
	n := copy(to, l[min(max(at, 0), int64(len(l))):])
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}
