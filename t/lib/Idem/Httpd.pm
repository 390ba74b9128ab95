package Idem::Httpd;

# One httpd of its own: ServerRoot, port, MPM, configuration text and logs. Debian's programs and modules.

use strict;
use warnings;
use File::Copy ();
use IO::Socket::INET;
use Idem::Util;

my %STATIC = map { $_ => 1 } qw(core so watchdog http log_config logio version unixd);
my @BASE = qw(authn_core authn_file authz_core authz_user auth_basic alias dir env setenvif mime headers rewrite reqtimeout socache_shmcb);

my %MPM = (
    event => <<'CONF',
ServerLimit 2
StartServers 2
ThreadsPerChild 25
ThreadLimit 64
MaxRequestWorkers 50
MinSpareThreads 1
MaxSpareThreads 50
CONF
    prefork => <<'CONF',
ServerLimit 32
StartServers 8
MinSpareServers 1
MaxSpareServers 32
MaxRequestWorkers 32
CONF
);

# new(mpm => 'event' | 'prefork' (default event, or what IDEM_MPM says), modules => [names beside the base], without => [names of it], config => text, mpm_config => text,
#     pg => Idem::Postgres or undef (no store), db_user => role, dbd => text in place of the default DBD settings,
#     module => 0 to leave mod_idempotency out, root => folder, env => {}, log_level => 'info')
sub new {
    my ($class, %arg) = @_;
    my $self = bless {
        mpm => $ENV{IDEM_MPM} || 'event', modules => [], config => '', module => 1, log_level => 'info', env => {}, %arg,
        port => free_port(), expected => [],
        # A server that ends in the moment in which it has taken a connection: libpq writes its parting words to stderr
        # before whoever connects has had a chance to say otherwise.
        allowed => [qr/^(?:FATAL|WARNING):  terminating connection (?:due to|because of) |^(?:DETAIL|HINT):  /],
    }, $class;
    die "no such MPM: $self->{mpm}\n" unless $MPM{ $self->{mpm} };
    $self->{program} = (grep { -x } qw(/usr/sbin/apache2 /usr/sbin/httpd))[0] or die "no httpd is installed\n";
    $self->{module_dir} = (grep { -d } qw(/usr/lib/apache2/modules /usr/lib64/httpd/modules))[0] or die "no module directory\n";
    $self->{root} //= own_folder('httpd');
    for my $name (qw(conf logs run htdocs)) {
        mkdir "$self->{root}/$name";
        give("$self->{root}/$name");
    }
    if ($self->{module}) {
        # A copy, because a checkout may lie where the servers' account cannot read.
        File::Copy::copy(needed(out_dir() . '/mod_idempotency.so'), "$self->{root}/mod_idempotency.so") or die "copy: $!\n";
        chmod 0644, "$self->{root}/mod_idempotency.so";
    }
    at_end(sub { $self->kill9 });
    return $self;
}

sub port { $_[0]{port} }
sub root { $_[0]{root} }
sub pid { $_[0]{pid} }
sub conf_file { "$_[0]{root}/conf/httpd.conf" }
sub log_file { "$_[0]{root}/logs/error.log" }
sub log { -e $_[0]->log_file ? slurp($_[0]->log_file) : '' }

# The whole configuration around a test's own text.
sub config_text {
    my ($self, %arg) = @_;
    my $c = { %$self, %arg };
    my @names = ("mpm_$c->{mpm}", @BASE, $c->{mpm} eq 'event' ? 'cgid' : 'cgi');
    push @names, 'dbd' if $c->{pg} || $c->{dbd};
    my %seen = (%STATIC, map { $_ => 1 } @{ $c->{without} || [] });
    my $text = "ServerRoot \"$c->{root}\"\nServerName localhost\nListen 127.0.0.1:$c->{port}\nPidFile $c->{root}/run/httpd.pid\n";
    $text .= "DefaultRuntimeDir $c->{root}/run\n";
    for my $name (grep { !$seen{$_}++ } @names, @{ $c->{modules} }) {
        my $file = -e "$c->{module_dir}/lib$name.so" ? "lib$name.so" : "mod_$name.so";
        my $symbol = $name =~ /^php/ ? 'php_module' : "${name}_module";
        $text .= "LoadModule $symbol $c->{module_dir}/$file\n";
    }
    $text .= "LoadModule idempotency_module $c->{root}/mod_idempotency.so\n" if $c->{module};
    $text .= $c->{mpm_config} // $MPM{ $c->{mpm} };
    $text .= <<"CONF";
ErrorLog logs/error.log
LogLevel $c->{log_level}
LogFormat "%h %u \\"%r\\" %>s %b outcome=%{idempotency-outcome}n operation=%{idempotency-operation}n" test
CustomLog logs/access.log test
TypesConfig /etc/mime.types
DocumentRoot htdocs
Timeout 20
RequestReadTimeout header=20-40,MinRate=500 body=20,MinRate=500
KeepAliveTimeout 10
GracefulShutdownTimeout 20
Mutex file:$c->{root}/run default
<Directory />
    AllowOverride None
    Require all granted
</Directory>
CONF
    $text .= "ScriptSock $c->{root}/run/cgid\n" if $c->{mpm} eq 'event';
    $text .= $c->{dbd} // $self->dbd_text($c->{pg}, $c->{db_user}) if $c->{pg} || $c->{dbd};
    return $text . $c->{config} . "\n";
}

sub dbd_text {
    my ($self, $pg, $user) = @_;
    # a prefork child has one request at a time, and there are many of them
    return sprintf <<'CONF', $pg->conninfo(user => $user), $self->{mpm} eq 'prefork' ? 2 : 10;
DBDriver pgsql
DBDParams "%s"
DBDPersist On
DBDMin 0
DBDKeep 2
DBDMax %d
DBDExptime 60
CONF
}

# A module built with AddressSanitizer needs its library first in the server; what it finds goes to the log.
sub environment {
    my ($self) = @_;
    return { (map { $_ => $ENV{$_} } grep { /^[AUL]SAN_OPTIONS$/ } keys %ENV),
        ($ENV{IDEM_PRELOAD} && $self->{module} ? (LD_PRELOAD => $ENV{IDEM_PRELOAD}) : ()), %{ $self->{env} } };
}

sub command {
    my ($self, @more) = @_;
    return [ $self->{program}, '-d', $self->{root}, '-f', $self->conf_file, @more ];
}

sub start {
    my ($self) = @_;
    my $times = $self->resumed;
    spew($self->conf_file, $self->config_text, 0644);
    $self->{pid} = spawn(cmd => $self->command('-DFOREGROUND'), session => 1, out => "$self->{root}/logs/stdout",
        dir => $self->{root}, env => $self->environment);
    # Before it says so it does not know its signals yet.
    wait_for(sub { !alive($self->{pid}) or $self->resumed > $times && $self->answers }, 30) && alive($self->{pid})
        or die "httpd does not start:\n" . tail("$self->{root}/logs/stdout", 20) . tail($self->log_file, 20);
    return $self;
}

sub answers {
    my ($self) = @_;
    return !!IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}, Timeout => 2);
}

# (exit status, output) of httpd -t for the base configuration and this text; options as for new().
sub configtest {
    my ($self, $text, %arg) = @_;
    my $file = "$self->{root}/conf/test.conf";
    spew($file, $self->config_text(%arg, config => $text), 0644);
    return run(cmd => [ $self->{program}, '-d', $self->{root}, '-f', $file, '-t' ], dir => $self->{root}, env => $self->environment);
}

# The children that serve requests (not mod_cgid's daemon).
sub children {
    my ($self) = @_;
    return () unless alive($self->{pid});
    my @all = pids_below($self->{pid});
    return @all if $self->{mpm} eq 'prefork';
    return grep { (eval { slurp("/proc/$_/status") } // '') =~ /^Threads:\s+(\d+)/m && $1 > 1 } @all;
}

# The child that has this process (a CGI, through mod_cgi) or this TCP connection is not visible from outside;
# a test that has to hit the right one runs with mpm_config of one child.
sub kill_child {
    my ($self, $signal, $pid) = @_;
    ($pid) = $self->children unless $pid;
    kill $signal // 'KILL', $pid or die "no child to send a signal to\n";
    return $pid;
}

sub resumed { scalar(() = $_[0]->log =~ /resuming normal operations/g) }

sub again {
    my ($self, $signal, $before) = @_;
    my $times = $self->resumed;
    $before->() if $before;
    kill $signal => $self->{pid};
    wait_for(sub { $self->resumed > $times }, 30) or die "httpd does not come back:\n" . tail($self->log_file, 20);
}

# graceful(config => text) and restart(config => text): with another configuration text from then on.
sub reread {
    my ($self, %arg) = @_;
    return unless exists $arg{config};
    $self->{config} = $arg{config};
    spew($self->conf_file, $self->config_text, 0644);
}

sub graceful { my ($self, %arg) = @_; $self->again(USR1 => sub { $self->reread(%arg) }) }
sub restart { my ($self, %arg) = @_; $self->again(HUP => sub { $self->reread(%arg) }) }

# End: 'TERM' at once, 'WINCH' gracefully. Returns false where httpd had to be killed.
sub stop {
    my ($self, $signal) = @_;
    my $pid = $self->{pid} or return 1;
    my $ended = end_process($pid, $signal // 'TERM', 30);
    $self->{pid} = undef;
    return $ended;
}

# The machine dies: parent, children and scripts at once.
sub kill9 {
    my ($self) = @_;
    my $pid = $self->{pid} or return;
    kill KILL => -$pid, pids_below($pid);
    waitpid $pid, 0;
    $self->{pid} = undef;
}

# A line of level warn or higher (or one that says a child crashed) that this describes is expected and has to
# be there at the end; allow_log takes lines that may come or not.
sub expect_log { push @{ $_[0]{expected} }, @_[ 1 .. $#_ ] }
sub allow_log { push @{ $_[0]{allowed} }, @_[ 1 .. $#_ ] }

# (lines nobody declared, declarations that no line met)
sub log_faults {
    my ($self) = @_;
    my (@undeclared, %met);
    LINE: for my $line (split /\n/, $self->log . (-e "$self->{root}/logs/stdout" ? slurp("$self->{root}/logs/stdout") : '')) {
        next unless length $line;
        my $harmless = $line =~ /^\[[^\]]+\] \[[\w.-]*:(?:notice|info|debug|trace\d)\]/ && $line !~ /exit signal (?!Killed|Terminated)/;
        my $declared = 0;
        for my $like (@{ $self->{expected} }) {
            $line =~ $like or next;
            $met{$like} = $declared = 1;
        }
        next if $harmless || $declared;
        $line =~ $_ and next LINE for @{ $self->{allowed} };
        push @undeclared, $line;
    }
    return (\@undeclared, [ grep { !$met{$_} } @{ $self->{expected} } ]);
}

1;
