package Idem::Backend;

# Sets up the application (Idem::App, app.php) in a folder: as CGI scripts (cgi), as an HTTP server to be proxied to
# (proxy), as PHP behind FPM (fpm, by a socket; fpm_tcp), as PHP by mod_fcgid (fcgid) and within httpd (php, for
# prefork), and as a small Lua handler that keeps the same book (lua: echo only). All of them share one `effects` file
# and one `behave` file.

use strict;
use warnings;
use File::Copy ();
use Idem::Util;
use IO::Socket::INET;
use IO::Socket::UNIX;
use JSON::PP ();

sub new {
    my ($class, %arg) = @_;
    my $root = $arg{root} . '/app';
    my $self = bless { root => $root, kinds => $arg{kinds} || ['cgi'] }, $class;
    mkdir $_ for $root, "$root/Idem", "$root/cgi", "$root/php";
    give($root, "$root/cgi", "$root/php");
    spew("$root/effects", '', 0644);
    File::Copy::copy(source_dir() . '/t/lib/Idem/App.pm', "$root/Idem/App.pm") or die "copy: $!\n";
    chmod 0644, "$root/Idem/App.pm";
    my %set_up = map { $_ => 1 } map { /^fpm/ ? 'fpm' : /^(?:fcgid|php)$/ ? 'php' : $_ } @{ $self->{kinds} };
    $self->$_ for map { "set_up_$_" } sort keys %set_up;
    at_end(sub { $self->stop });
    return $self;
}

sub has { my ($self, $kind) = @_; return scalar grep { $_ eq $kind } @{ $self->{kinds} } }
sub cgi { "$_[0]{root}/cgi/app.cgi" }
sub php_dir { "$_[0]{root}/php" }
sub port { $_[0]{port} }
sub url { "http://127.0.0.1:$_[0]{port}" }
sub fpm_handler { "proxy:unix:$_[0]{root}/fpm.sock|fcgi://localhost/" }

# The modules that the kinds need beside the base, and what stands for them in configuration text.
sub modules {
    my ($self) = @_;
    my %needs = (proxy => [qw(proxy proxy_http)], fpm => [qw(proxy proxy_fcgi)], fpm_tcp => [qw(proxy proxy_fcgi)],
        fcgid => ['fcgid'], php => ['php8.2'], lua => ['lua']);
    return map { @{ $needs{$_} || [] } } @{ $self->{kinds} };
}

sub tokens {
    my ($self) = @_;
    return (CGI => $self->cgi, PHP => $self->php_dir, FPM => $self->fpm_handler, PROXY => $self->has('proxy') ? $self->url : '',
        FPM_TCP => 'proxy:fcgi://127.0.0.1:' . ($self->{fpm_port} // 0), LUA => "$self->{root}/lua");
}

# The lines that make a path of the server end at the application, for protected(). PHP is a front controller, and a
# folder can be run in one way only in one section: hence a <Location> of its own for each kind.
sub place {
    my ($by, $path) = @_;
    my $php = sub { "Alias \"$path\" \"\@PHP\@\"\n<Directory \"\@PHP\@\">\n    AllowOverride FileInfo\n    Options FollowSymLinks ExecCGI\n"
        . "</Directory>\n<Location \"$path\">\n    <If \"%{REQUEST_FILENAME} =~ /\\.php\$/\">\n        $_[0]\n    </If>\n</Location>\n" };
    return $by eq 'cgi' ? "ScriptAlias \"$path\" \"\@CGI\@\"\n"
        : $by eq 'proxy' ? "ProxyPass \"$path\" \"\@PROXY\@$path\"\n"
        : $by eq 'proxy_off' ? "ProxyPass \"$path\" \"\@PROXY\@$path\" disablereuse=On\n"
        : $by eq 'fpm' ? "Alias \"$path\" \"\@PHP\@\"\n<Directory \"\@PHP\@\">\n    AllowOverride FileInfo\n    Options FollowSymLinks\n"
            . "    <FilesMatch \"\\.php\$\">\n        SetHandler \"\@FPM\@\"\n    </FilesMatch>\n</Directory>\n"
        : $by eq 'lua' ? "Alias \"$path\" \"\@LUA\@/app.lua\"\n<Location \"$path\">\n    SetHandler lua-script\n</Location>\n"
        : $by eq 'fpm_tcp' ? $php->('SetHandler "@FPM_TCP@"')
        : $by eq 'fcgid' ? $php->('SetHandler fcgid-script') . "FcgidWrapper /usr/bin/php-cgi .php\n"
        : $by eq 'php' ? $php->('SetHandler application/x-httpd-php')
        : '';
}

# A further CGI script, with the text of a Perl program that may use Idem::App and $root.
sub script {
    my ($self, $name, $program) = @_;
    return spew("$self->{root}/cgi/$name", "#!/usr/bin/perl\nuse strict;\nuse lib '$self->{root}';\nuse Idem::App;\nmy \$root = '$self->{root}';\n$program\n", 0755);
}

sub set_up_cgi { $_[0]->script('app.cgi', 'Idem::App::cgi($root);') }

sub set_up_proxy {
    my ($self) = @_;
    $self->{port} //= free_port();
    $self->start_proxy;
}

sub start_proxy {
    my ($self) = @_;
    $self->{proxy} = spawn(cmd => [ $^X, "-I$self->{root}", '-MIdem::App', '-e', 'Idem::App::serve(@ARGV)', $self->{root}, $self->{port} ],
        session => 1, out => "$self->{root}/proxy.log", dir => $self->{root});
    wait_for(sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}) }, 10)
        or die "the proxied application does not start:\n" . tail("$self->{root}/proxy.log", 5);
}

# The port is closed until start_proxy.
sub stop_proxy {
    my ($self) = @_;
    my $pid = delete $self->{proxy} or return;
    kill KILL => -$pid;
    waitpid $pid, 0;
}

# A front controller: every path below the folder that is no file is index.php, by .htaccess.
sub set_up_php {
    my ($self) = @_;
    my $root = $self->{root};
    (my $php = slurp(source_dir() . '/t/lib/Idem/app.php')) =~ s/\@ROOT\@/$root/g;
    spew("$root/php/index.php", $php, 0644);
    spew("$root/php/.htaccess", <<'HTACCESS', 0644);
RewriteEngine On
RewriteCond %{REQUEST_FILENAME} !-f
RewriteRule ^ index.php [L]
HTACCESS
}

sub set_up_fpm {
    my ($self) = @_;
    my $root = $self->{root};
    my ($program) = sort { $b cmp $a } grep { -x } glob('/usr/sbin/php-fpm*'), glob('/usr/bin/php-fpm*');
    $program or die "php-fpm is not installed\n";
    $self->set_up_php;
    my $pool = "pm = static\npm.max_children = 4\ncatch_workers_output = yes\nphp_admin_value[error_log] = $root/php.log\n"
        . "php_admin_value[post_max_size] = 64M\nphp_admin_flag[display_errors] = off\n";
    my $tcp = '';
    if ($self->has('fpm_tcp')) {
        $self->{fpm_port} //= free_port();
        $tcp = "[tcp]\nlisten = 127.0.0.1:$self->{fpm_port}\n$pool";
    }
    spew("$root/fpm.conf", <<"CONF", 0644);
[global]
error_log = $root/fpm.log
daemonize = no
[www]
listen = $root/fpm.sock
listen.mode = 0666
$pool$tcp
CONF
    $self->{fpm} = spawn(cmd => [ $program, '-F', '-y', "$root/fpm.conf" ], session => 1, out => "$root/fpm.out", dir => $root);
    wait_for(sub { !alive($self->{fpm}) || IO::Socket::UNIX->new("$root/fpm.sock") }, 10) && alive($self->{fpm})
        or die "php-fpm does not start:\n" . tail("$root/fpm.out", 5) . tail("$root/fpm.log", 5);
}

# The application in a few lines of Lua, for a handler that works inside httpd.
sub set_up_lua {
    my ($self) = @_;
    mkdir "$self->{root}/lua";
    give("$self->{root}/lua");
    spew("$self->{root}/lua/app.lua", <<"LUA", 0644);
function handle(r)
    local body = r.method == 'POST' and r:requestbody() or ''
    local book = io.open('$self->{root}/effects', 'a')
    book:write(string.format('{"event":"effect","method":"%s","path":"%s","length":%d,"announced":"%s","key":"%s"}\\n', r.method, r.uri,
        #body, r.headers_in['Content-Length'] or '', (r.headers_in['Idempotency-Key'] or ''):gsub('"', '')))
    book:close()
    r.content_type = 'application/octet-stream'
    r:write(body)
    return apache2.OK
end
LUA
}

sub stop_fpm {
    my ($self) = @_;
    my $pid = delete $self->{fpm} or return;
    kill KILL => -$pid;
    waitpid $pid, 0;
}

sub stop { my ($self) = @_; $self->stop_proxy; $self->stop_fpm }

# What the application does from now on, whatever the query says not; behave() is its plain self again.
sub behave {
    my ($self, %p) = @_;
    my $text = join '&', map { my $name = $_; map { my $v = $_; $v =~ s/([^A-Za-z0-9_.~-])/sprintf '%%%02X', ord $1/ge; "$name=$v" } ref $p{$name} ? @{ $p{$name} } : $p{$name} } sort keys %p;
    unlink "$self->{root}/release" if $p{hold} || $p{stop};
    spew("$self->{root}/behave.new", $text, 0644);
    rename "$self->{root}/behave.new", "$self->{root}/behave" or die "behave: $!\n";
}

# Let those go on that were told to hold.
sub release { my ($self) = @_; spew("$self->{root}/release", '', 0644) }

sub lines {
    my ($self) = @_;
    return map { JSON::PP->new->utf8->decode($_) } split /\n/, slurp("$self->{root}/effects");
}

# Every execution so far, and the ends of those that came to their end.
sub effects { my ($self) = @_; return grep { $_->{event} eq 'effect' } $self->lines }
sub ends { my ($self) = @_; return grep { $_->{event} eq 'end' } $self->lines }

1;
